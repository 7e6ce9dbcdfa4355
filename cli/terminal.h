/* A terminal that a verb draws on until a key or a signal ends it. */
#ifndef BERTH_CLI_TERMINAL_H
#define BERTH_CLI_TERMINAL_H

#include <stdbool.h>

/* Takes the terminal: its other screen, no cursor, keys at once. False: it is none on which one can draw. Given back by end. */
bool cli_terminal_begin(void);
void cli_terminal_end(void);

/* How many columns and lines there are now. */
void cli_terminal_size(unsigned *width, unsigned *height);

enum { CLI_TERMINAL_NOTHING = 0, CLI_TERMINAL_RESIZED = -1, CLI_TERMINAL_SIGNAL = -2 };
/* Waits for a key, which it answers, at most so long. RESIZED: draw again; SIGNAL: one that ends programs has come, which
 * cli_terminal_end lets have its way. */
int cli_terminal_wait(double seconds);

#endif
