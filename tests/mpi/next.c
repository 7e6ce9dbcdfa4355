/* A rank whose binding speaks another version of the agreement: libberth_mpi's sources, compiled so. The other ranks run
 * this program with the real library. All must be told. */
#include <berth/berth.h>
#include <stdio.h>
#include <string.h>

#include <berth_mpi.h>

int main(int argc, char **argv)
{
    berth_mpi *job = NULL;
    MPI_Init(&argc, &argv);
    int code = berth_mpi_create(MPI_COMM_WORLD, NULL, &job) == BERTH_OK ? 0 : 1;
    if (!code)
        code = berth_mpi_agree(job) == BERTH_MISMATCH &&
                       strstr(berth_last_error()->message, "rank 1 (berth ") &&
                       strstr(berth_last_error()->message, "speaks version 3 of the agreement, others 2")
                   ? 0
                   : 1;
    printf("%s\n", berth_last_error()->message);
    code = berth_mpi_destroy(job) == BERTH_OK ? code : 1;
    MPI_Finalize();
    return code;
}
