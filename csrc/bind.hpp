// What the bindings share: conversion of arguments and results, and the register functions of every concept.
// Only files that include this one, and module.cpp, know Python.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gil.hpp"
#include "llama.h"

namespace pyspec {

namespace py = pybind11;

// Whole numbers of 32 bits in one dimension from anything array-like, without a copy from int32 arrays.
// Floats, bools, other shapes and larger numbers are InvalidValueErrors that name the argument.
class IntSpan {
public:
    IntSpan(py::handle value, const char * name);
    const int32_t * data() const { return data_; }
    int64_t size() const { return size_; }

private:
    bool from_sequence(py::handle value, const char * name);
    void from_array(py::handle value, const char * name);

    py::object owner_;
    std::vector<int32_t> copied_;
    const int32_t * data_ = nullptr;
    int64_t size_ = 0;
};

std::vector<int8_t> bool_array(py::handle value, const char * name);
// The file system's bytes of a str, bytes or os.PathLike, and back.
std::string path_bytes(py::handle path);
py::str path_text(const std::string & bytes);
// Text from C++ that need not be UTF-8.
py::str lossy_text(const std::string & text);
py::array_t<int32_t> token_array(const std::vector<llama_token> & tokens);

// Hand the collected messages to Python's logging; does nothing when there are none. Returns how many.
size_t hand_over_log();

// Hands over the messages of a call when it ends, also when it throws.
struct LogHandover {
    LogHandover() = default;
    ~LogHandover();
    LogHandover(const LogHandover &) = delete;
    LogHandover & operator=(const LogHandover &) = delete;
};

// Freeing a model or a context takes long; other Python threads go on meanwhile.
template <typename T>
std::shared_ptr<T> freed_without_gil(T * object) {
    return std::shared_ptr<T>(object, [](T * last) {
        if (PyGILState_Check() != 0) {
            const GilRelease release;
            delete last;
        } else {
            delete last;
        }
    });
}

void register_gil(py::module_ & m);
void register_errors(py::module_ & m);
void register_log(py::module_ & m);
void register_backend(py::module_ & m);
void register_vocab(py::module_ & m);
void register_model(py::module_ & m);
void register_state(py::module_ & m);
void register_context(py::module_ & m);
void register_sampler(py::module_ & m);

}  // namespace pyspec
