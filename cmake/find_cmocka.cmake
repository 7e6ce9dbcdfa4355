# Sets berth_have_cmocka. Without cmocka the tests are left out, unless they were asked for.
find_package(PkgConfig QUIET)
if(PkgConfig_FOUND)
  pkg_check_modules(cmocka QUIET IMPORTED_TARGET cmocka)
endif()
set(berth_have_cmocka ${cmocka_FOUND})
if(NOT berth_have_cmocka)
  if(BERTH_BUILD_TESTS STREQUAL AUTO)
    message(STATUS "berth: no tests, since cmocka (found through pkg-config) is not there")
  else()
    message(FATAL_ERROR "berth: the tests need cmocka and pkg-config (Debian: libcmocka-dev pkg-config); "
      "or configure with -DBERTH_BUILD_TESTS=OFF")
  endif()
endif()
