/* How often tests repeat what chance decides. SCALE is 1 in the plain build, and larger where each step costs ten times as
 * much: with debug checks, under the sanitizers, in an emulator. tests/CMakeLists.txt knows which build this is. A test divides
 * its rounds by it, and keeps the cases that it names one by one. */
#ifndef BERTH_TESTS_SCALE_H
#define BERTH_TESTS_SCALE_H

enum { SCALE = BERTH_TEST_SCALE };

#endif
