/* The program that the README shows: a test compares the two, and what it says. */
#include <berth/berth.h>
#include <stdio.h>

static void step(berth_allocator *a)
{
    float *x = BERTH_NEW(a, float, 100000), *y = BERTH_NEW(a, float, 50000);
    berth_deallocate(a, x, 0, NULL);
    float *z = BERTH_NEW(a, float, 120000); /* a heap has no hole for it */
    berth_deallocate(a, y, 0, NULL);
    berth_deallocate(a, z, 0, NULL);
}

int main(void)
{
    berth_plan *plan;
    berth_allocator *planned;
    berth_report report = BERTH_REPORT_INIT;
    berth_plan_create(&plan);
    berth_planned_create(berth_cpu_allocator(), plan, &planned);
    BERTH_RECORD(planned)
    {
        step(planned); /* watched once; each block then has its place in one */
    }
    BERTH_REPLAY(planned, &report)
    {
        step(planned); /* and every later run costs an addition for each */
    }
    char text[1024];
    berth_report_text(&report, text, sizeof text);
    fputs(text, stdout);
    berth_allocator_release(planned);
    berth_plan_release(plan);
}
