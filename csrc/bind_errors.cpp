// Raises C++ errors as the classes of pyspec.errors.
#include "bind.hpp"
#include "errors.hpp"

namespace pyspec {

namespace {

py::object to_python(const std::string & name, const ErrorValue & value) {
    if (const auto * whole = std::get_if<int64_t>(&value)) {
        return py::int_(*whole);
    }
    if (const auto * number = std::get_if<double>(&value)) {
        return py::float_(*number);
    }
    const std::string & text = std::get<std::string>(value);
    return name == "path" ? path_text(text) : lossy_text(text);
}

void raise(const Error & error) {
    const py::object kind = py::module_::import("pyspec.errors").attr(error.kind.c_str());
    py::dict numbers;
    for (const auto & [name, value] : error.values) {
        numbers[py::str(name)] = to_python(name, value);
    }
    const py::object instance = kind(**numbers);
    PyErr_SetObject(kind.ptr(), instance.ptr());
}

}  // namespace

void register_errors(py::module_ & /* m */) {
    py::register_local_exception_translator([](std::exception_ptr pointer) {
        try {
            if (pointer) {
                std::rethrow_exception(pointer);
            }
        } catch (const Error & error) {
            raise(error);
        }
    });
}

}  // namespace pyspec
