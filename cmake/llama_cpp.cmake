# llama.cpp as targets `llama` and `ggml` for the extension.
#
# Owns where its sources come from, which parts are built and the cures of its kernels. Leaves every option of
# llama.cpp and ggml to the user: GGML_CUDA, GGML_VULKAN, GGML_METAL, GGML_HIP, GGML_NATIVE ... are theirs.
#
# Sets PYSPEC_LLAMA_CPP_COMMIT, and PYSPEC_BACKEND_TARGETS in portable builds.

# ---- sources ---------------------------------------------------------------------------------------------------------

set(pin_file "${PROJECT_SOURCE_DIR}/vendor/llama_cpp.json")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${pin_file}")

if(PYSPEC_LLAMA_CPP_DIR)
    get_filename_component(llama_cpp_tree "${PYSPEC_LLAMA_CPP_DIR}" ABSOLUTE)
    if(NOT EXISTS "${llama_cpp_tree}/CMakeLists.txt" OR NOT EXISTS "${llama_cpp_tree}/include/llama.h")
        message(FATAL_ERROR "PYSPEC_LLAMA_CPP_DIR=${PYSPEC_LLAMA_CPP_DIR} is no checkout of llama.cpp: it has no "
                            "CMakeLists.txt or no include/llama.h")
    endif()
    set(PYSPEC_LLAMA_CPP_COMMIT "unknown")
    if(EXISTS "${llama_cpp_tree}/.git")
        find_package(Git QUIET)
        if(Git_FOUND)
            execute_process(COMMAND "${GIT_EXECUTABLE}" rev-parse --short=9 HEAD WORKING_DIRECTORY "${llama_cpp_tree}"
                            OUTPUT_VARIABLE head OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE status)
            if(status EQUAL 0)
                set(PYSPEC_LLAMA_CPP_COMMIT "${head}")
            endif()
        endif()
    endif()
else()
    set(llama_cpp_tree "${PROJECT_SOURCE_DIR}/vendor/llama.cpp")
    # Does nothing where the pinned tree lies, refuses any other.
    execute_process(COMMAND "${Python_EXECUTABLE}" "${PROJECT_SOURCE_DIR}/scripts/fetch_llama_cpp.py" --quiet
                    RESULT_VARIABLE status)
    if(NOT status EQUAL 0)
        message(FATAL_ERROR "llama.cpp's sources are not in place; the lines above say why")
    endif()
    file(READ "${pin_file}" pin)
    string(JSON PYSPEC_LLAMA_CPP_COMMIT GET "${pin}" commit)
endif()
message(STATUS "pyspec: llama.cpp ${PYSPEC_LLAMA_CPP_COMMIT} in ${llama_cpp_tree}")

# ---- what is built ---------------------------------------------------------------------------------------------------

foreach(part COMMON TESTS TOOLS EXAMPLES SERVER APP UI MTMD)
    set(LLAMA_BUILD_${part} OFF)
endforeach()
set(LLAMA_OPENSSL OFF)
set(LLAMA_ALL_WARNINGS OFF)

# Without these, llama.cpp would ask git and find the commit of pyspec.
set(LLAMA_BUILD_COMMIT "${PYSPEC_LLAMA_CPP_COMMIT}")
set(LLAMA_BUILD_NUMBER 0)
set(GIT_EXE "")

set(BUILD_SHARED_LIBS ${PYSPEC_PORTABLE})
if(PYSPEC_PORTABLE)
    set(GGML_NATIVE OFF)
    set(GGML_BACKEND_DL ON)
    if(NOT DEFINED GGML_CPU_ALL_VARIANTS)
        set(GGML_CPU_ALL_VARIANTS ON)
    endif()
else()
    # Nothing of llama.cpp is visible outside the extension, so that two copies of it in one process never mix.
    set(CMAKE_C_VISIBILITY_PRESET hidden)
    set(CMAKE_CXX_VISIBILITY_PRESET hidden)
    set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
endif()

# ggml only ever adds to this list, so backends of an earlier configuration would stay in it.
unset(GGML_AVAILABLE_BACKENDS CACHE)
add_subdirectory("${llama_cpp_tree}" llama.cpp EXCLUDE_FROM_ALL)

# ---- cures of ggml's kernels for CPUs ---------------------------------------------------------------------------------
# Each is a header in front of one file, and none changes a file. Source properties belong to a directory, not a target: a
# portable build compiles the files once per CPU variant.

set(kernels "${llama_cpp_tree}/ggml/src/ggml-cpu")

# A header goes in front of `file` where the file and its neighbour `about` are as the header takes them to be.
function(pyspec_put_in_front file header about text)
    set(found "")
    if(EXISTS "${kernels}/${file}" AND EXISTS "${kernels}/${about}")
        file(READ "${kernels}/${about}" found)
        string(REGEX REPLACE "[ \r\n]+" " " found "${found}")
    endif()
    string(FIND "${found}" "${text}" at)
    if(at GREATER -1)
        set_source_files_properties("${kernels}/${file}" DIRECTORY "${llama_cpp_tree}/ggml/src" PROPERTIES
            COMPILE_OPTIONS "-I${kernels};-include;${PROJECT_SOURCE_DIR}/cmake/${header}")
    else()
        message(WARNING "pyspec: ${about} is not as ${header} expects; ${file} is compiled as it is")
    endif()
endfunction()

if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    pyspec_put_in_front(amx/mmq.cpp amx_tiles.h amx/mmq.cpp "_tile_loadconfig(")
endif()
if(CMAKE_C_COMPILER_ID MATCHES "^(GNU|Clang|AppleClang|IntelLLVM)$" AND NOT CMAKE_C_COMPILER_FRONTEND_VARIANT STREQUAL "MSVC"
   AND CMAKE_CXX_COMPILER_ID MATCHES "^(GNU|Clang|AppleClang|IntelLLVM)$")
    pyspec_put_in_front(amx/amx.cpp amx_batches.h amx/amx.cpp "!ggml_is_contiguous(src0) || !ggml_is_contiguous(src1)")
    pyspec_put_in_front(ggml-cpu.c one_class.h llamafile/sgemm.h
        "bool llamafile_sgemm(const struct ggml_compute_params * params, int64_t, int64_t, int64_t, const void *, \
int64_t, const void *, int64_t, void *, int64_t, int, int, int)")
else()
    message(WARNING "pyspec: no cures of ggml's kernels for this compiler (docs/attention.md): decode one sequence at a "
                    "time on CPUs with AMX, and expect other last bits of logits alone and in a draft")
endif()

# ---- libraries that travel in the wheel ------------------------------------------------------------------------------

if(PYSPEC_PORTABLE)
    set(PYSPEC_BACKEND_TARGETS ${GGML_AVAILABLE_BACKENDS})
    # Names of their own and no versions: a wheel holds no links, and a loader that already has the `libllama.so` of
    # another package must not take it for ours.
    foreach(target llama ggml ggml-base)
        set_target_properties(${target} PROPERTIES OUTPUT_NAME "pyspec-${target}")
    endforeach()
    foreach(target llama ggml ggml-base ${PYSPEC_BACKEND_TARGETS})
        set_property(TARGET ${target} PROPERTY VERSION)
        set_property(TARGET ${target} PROPERTY SOVERSION)
        set_target_properties(${target} PROPERTIES BUILD_WITH_INSTALL_RPATH ON)
        if(APPLE)
            set_target_properties(${target} PROPERTIES INSTALL_RPATH "@loader_path")
        elseif(UNIX)
            set_target_properties(${target} PROPERTIES INSTALL_RPATH "$ORIGIN")
            target_link_options(${target} PRIVATE "$<$<CONFIG:Release>:LINKER:--strip-all>")
        endif()
        install(PROGRAMS "$<TARGET_FILE:${target}>" DESTINATION pyspec/lib COMPONENT pyspec)
    endforeach()
endif()
