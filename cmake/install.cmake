# What `cmake --install` puts where: libraries, headers, the command, CMake and pkg-config files, and, where
# they are written, manual pages and completions.
include(CMakePackageConfigHelpers)

install(TARGETS berth_shared berth_static EXPORT berth_targets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/berth DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.h")
if(BERTH_BUILD_CLI)
  install(TARGETS berth_command RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

set(berth_cmake_dir ${CMAKE_INSTALL_LIBDIR}/cmake/berth)
install(EXPORT berth_targets NAMESPACE berth:: FILE berth-targets.cmake DESTINATION ${berth_cmake_dir})
configure_package_config_file(cmake/berth-config.cmake.in ${PROJECT_BINARY_DIR}/berth-config.cmake
  INSTALL_DESTINATION ${berth_cmake_dir})
# Before 1.0 a new minor version may break callers.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/berth-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/berth-config.cmake ${PROJECT_BINARY_DIR}/berth-config-version.cmake
  DESTINATION ${berth_cmake_dir})

# pkg-config files must not hold a path below the prefix twice when a packager passes absolute folders.
foreach(folder LIBDIR INCLUDEDIR)
  if(IS_ABSOLUTE "${CMAKE_INSTALL_${folder}}")
    set(berth_pc_${folder} "${CMAKE_INSTALL_${folder}}")
  else()
    set(berth_pc_${folder} "\${prefix}/${CMAKE_INSTALL_${folder}}")
  endif()
endforeach()
set(berth_pc_prefix "@prefix@")
configure_file(cmake/berth.pc.in ${PROJECT_BINARY_DIR}/berth.pc.in @ONLY)
# The prefix is known only when installing: `cmake --install build --prefix /elsewhere` must be right too.
install(CODE "
  set(prefix \"\${CMAKE_INSTALL_PREFIX}\")
  configure_file(\"${PROJECT_BINARY_DIR}/berth.pc.in\" \"${PROJECT_BINARY_DIR}/berth.pc\" @ONLY)")
install(FILES ${PROJECT_BINARY_DIR}/berth.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

file(GLOB berth_man_pages CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/docs/man/*.1)
if(berth_man_pages)
  install(FILES ${berth_man_pages} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
endif()
if(EXISTS ${PROJECT_SOURCE_DIR}/completions/berth.bash)
  install(FILES ${PROJECT_SOURCE_DIR}/completions/berth.bash RENAME berth
    DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
endif()
if(EXISTS ${PROJECT_SOURCE_DIR}/completions/_berth)
  install(FILES ${PROJECT_SOURCE_DIR}/completions/_berth
    DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
endif()
