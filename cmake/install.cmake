# What `cmake --install` puts where: libraries, headers, the command, CMake and pkg-config files, and, where
# they are written, manual pages and completions.
include(CMakePackageConfigHelpers)

install(TARGETS ${berth_libraries} EXPORT berth_targets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/berth DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
foreach(name vulkan tflite ggml onnxruntime ucx mpi)
  if(TARGET berth_${name})
    install(TARGETS berth_${name} EXPORT berth_targets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
    install(FILES ${PROJECT_SOURCE_DIR}/bindings/${name}/berth_${name}.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  endif()
endforeach()
if(BERTH_BUILD_CLI)
  install(TARGETS berth_command berth_device_check RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  if(TARGET berth_record)
    install(TARGETS berth_record berth_malloc LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/berth)
  endif()
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

# They are the commands'.
if(BERTH_BUILD_CLI)
  file(GLOB berth_man_pages CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/docs/man/*.1)
  if(berth_man_pages)
    install(FILES ${berth_man_pages} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
  endif()
  if(EXISTS ${PROJECT_SOURCE_DIR}/completions/berth.bash)
    install(FILES ${PROJECT_SOURCE_DIR}/completions/berth.bash RENAME berth
      DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
  endif()
  if(EXISTS ${PROJECT_SOURCE_DIR}/completions/berth.fish)
    install(FILES ${PROJECT_SOURCE_DIR}/completions/berth.fish
      DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
  endif()
  if(EXISTS ${PROJECT_SOURCE_DIR}/completions/_berth)
    install(FILES ${PROJECT_SOURCE_DIR}/completions/_berth
      DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
  endif()
endif()

# The binding of PyTorch, where it is built: a library for C++ programs, and modules that look for it beside themselves.
if(TARGET berth_torch)
  set(BERTH_PYTHON_DIR ${CMAKE_INSTALL_LIBDIR}/berth/python CACHE STRING
    "Where Python modules go, e.g. lib/python3/dist-packages; programs add it to PYTHONPATH")
  install(TARGETS berth_torch LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/bindings/pytorch/berth_torch DESTINATION ${BERTH_PYTHON_DIR}
    FILES_MATCHING PATTERN "*.py" PATTERN "py.typed") # the mark that the package has types
  install(FILES ${PROJECT_SOURCE_DIR}/bindings/pytorch/berth_torch.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/berth)
endif()

# Licence and documents, where packagers look for them.
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/README.md ${PROJECT_SOURCE_DIR}/CHANGELOG.md
  DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/docs DESTINATION ${CMAKE_INSTALL_DOCDIR} FILES_MATCHING PATTERN "*.md" PATTERN "man" EXCLUDE)

# `cmake --build build --target uninstall` takes out what was installed last.
if(PROJECT_IS_TOP_LEVEL) # a project around this one may have its own, before or after
  add_custom_target(uninstall COMMAND ${CMAKE_COMMAND} -DMANIFEST=${CMAKE_BINARY_DIR}/install_manifest.txt
    -P ${PROJECT_SOURCE_DIR}/cmake/uninstall.cmake)
endif()
