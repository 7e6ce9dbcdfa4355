# berth_add_binding(NAME): libberth_NAME.so of the folder's sources, as berth::NAME. Berth is not linked: the program has it, and
# there must be one. It stays when it is closed, since the runtime and the process keep pointers to its functions.
function(berth_add_binding name)
  set(binding berth_${name})
  file(GLOB sources CONFIGURE_DEPENDS *.c)
  add_library(${binding} SHARED ${sources})
  set_target_properties(${binding} PROPERTIES C_VISIBILITY_PRESET hidden VERSION ${PROJECT_VERSION}
    SOVERSION ${berth_abi} EXPORT_NAME ${name} LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bindings/${name})
  add_library(berth::${name} ALIAS ${binding})
  target_include_directories(${binding}
    PUBLIC $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>
    PRIVATE ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(${binding} PRIVATE berth_flags Threads::Threads ${CMAKE_DL_LIBS})
  if(NOT APPLE)
    target_link_options(${binding} PRIVATE -Wl,-z,nodelete)
  endif()
endfunction()
