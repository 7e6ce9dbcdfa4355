/* Sizes as people write and read them. */
#ifndef BERTH_CLI_SIZE_H
#define BERTH_CLI_SIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Reads "4096", "16M", "1.5GiB": suffixes K, M, G, T count by 1024, with or without B or iB. False if the
 * text is something else or the number does not fit. */
bool cli_size_read(const char *text, uint64_t *bytes);

/* Writes "21.50 MiB", or "312 B" below 1 KiB, into `text`. */
enum { CLI_SIZE_ROOM = 24 };
const char *cli_size_text(uint64_t bytes, char text[CLI_SIZE_ROOM]);

/* How far `bytes` is above `base`, "0 %" to "+12.3 %", into `text`. */
const char *cli_gap_text(uint64_t bytes, uint64_t base, char text[CLI_SIZE_ROOM]);

/* The same where it may be less or far more: "-8.1 %", "+5.3 %", and "51 x" where percents would have four digits. */
const char *cli_times_text(uint64_t bytes, uint64_t base, char text[CLI_SIZE_ROOM]);

/* Seconds as a person says them: "812 us", "3.2 ms", "1.25 s". */
const char *cli_time_text(double seconds, char text[CLI_SIZE_ROOM]);

#endif
