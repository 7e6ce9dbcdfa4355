/* A program that knows only the installed headers and library. */
#include <berth/status.h>
#include <stdio.h>
#include <string.h>

int main(void)
{
    puts(berth_status_words(BERTH_NOT_FOUND));
    return strcmp(berth_status_name(BERTH_NOT_FOUND), "BERTH_NOT_FOUND") != 0;
}
