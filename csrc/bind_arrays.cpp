// Conversion between Python's arrays, texts and paths and what csrc works with.
#include <limits>

#include "bind.hpp"
#include "errors.hpp"

namespace pyspec {

namespace {

const char * const whole_numbers = "a one-dimensional array of whole numbers";

[[noreturn]] void refuse(py::handle value, const char * name, const std::string & allowed) {
    std::string text = py::repr(value).cast<std::string>();
    if (text.size() > 80) {
        text = text.substr(0, 77) + "...";
    }
    invalid_value(name, text, allowed);
}

py::array as_array(py::handle value, const char * name, const char * allowed) {
    py::array array = py::array::ensure(value);
    if (!array) {
        PyErr_Clear();
        refuse(value, name, allowed);
    }
    if (array.ndim() != 1) {
        invalid_value(name, std::to_string(array.ndim()) + " dimensions", allowed);
    }
    return array;
}

int32_t checked_int32(py::handle value, long long number, const char * name) {
    if (number < std::numeric_limits<int32_t>::min() || number > std::numeric_limits<int32_t>::max()) {
        refuse(value, name, "whole numbers of 32 bits");
    }
    return static_cast<int32_t>(number);
}

}  // namespace

IntSpan::IntSpan(py::handle value, const char * name) {
    if (!from_sequence(value, name)) {
        from_array(value, name);
    }
}

// Lists of plain ints are the common case, and numpy would take longer than the whole call to convert them.
bool IntSpan::from_sequence(py::handle value, const char * name) {
    if (!PyList_CheckExact(value.ptr()) && !PyTuple_CheckExact(value.ptr())) {
        return false;
    }
    const Py_ssize_t n = PySequence_Fast_GET_SIZE(value.ptr());
    copied_.resize(static_cast<size_t>(n));
    for (Py_ssize_t i = 0; i < n; ++i) {
        PyObject * item = PySequence_Fast_GET_ITEM(value.ptr(), i);
        if (!PyLong_CheckExact(item)) {
            return false;
        }
        int overflow = 0;
        const long long number = PyLong_AsLongLongAndOverflow(item, &overflow);
        if (overflow != 0) {
            refuse(item, name, "whole numbers of 32 bits");
        }
        copied_[static_cast<size_t>(i)] = checked_int32(item, number, name);
    }
    data_ = copied_.data();
    size_ = n;
    return true;
}

void IntSpan::from_array(py::handle value, const char * name) {
    const py::array array = as_array(value, name, whole_numbers);
    const char kind = array.dtype().kind();
    if (array.size() == 0) {
        return;
    }
    if (kind != 'i' && kind != 'u') {
        refuse(value, name, whole_numbers);
    }
    size_ = array.size();
    if (py::isinstance<py::array_t<int32_t, py::array::c_style>>(array)) {
        owner_ = array;
        data_ = static_cast<const int32_t *>(array.data());
        return;
    }
    copied_.resize(static_cast<size_t>(size_));
    if (kind == 'u' && array.itemsize() == 8) {
        const auto wide = py::array_t<uint64_t, py::array::c_style | py::array::forcecast>::ensure(array);
        for (int64_t i = 0; i < size_; ++i) {
            const uint64_t number = wide.data()[i];
            copied_[static_cast<size_t>(i)] =
                checked_int32(value, number > INT32_MAX ? INT64_MAX : static_cast<long long>(number), name);
        }
    } else {
        const auto wide = py::array_t<int64_t, py::array::c_style | py::array::forcecast>::ensure(array);
        for (int64_t i = 0; i < size_; ++i) {
            copied_[static_cast<size_t>(i)] = checked_int32(value, wide.data()[i], name);
        }
    }
    data_ = copied_.data();
}

std::vector<int8_t> bool_array(py::handle value, const char * name) {
    const char * allowed = "a one-dimensional array of bools";
    const py::array array = as_array(value, name, allowed);
    if (array.size() != 0 && array.dtype().kind() != 'b') {
        refuse(value, name, allowed);
    }
    const auto flags = py::array_t<bool, py::array::c_style | py::array::forcecast>::ensure(array);
    return std::vector<int8_t>(flags.data(), flags.data() + flags.size());
}

std::string path_bytes(py::handle path) {
    PyObject * bytes = nullptr;
    if (PyUnicode_FSConverter(path.ptr(), &bytes) == 0) {
        throw py::error_already_set();
    }
    return py::reinterpret_steal<py::bytes>(bytes).cast<std::string>();
}

py::str path_text(const std::string & bytes) {
    PyObject * text = PyUnicode_DecodeFSDefaultAndSize(bytes.data(), static_cast<Py_ssize_t>(bytes.size()));
    if (text == nullptr) {
        throw py::error_already_set();
    }
    return py::reinterpret_steal<py::str>(text);
}

py::str lossy_text(const std::string & text) {
    PyObject * decoded = PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace");
    if (decoded == nullptr) {
        throw py::error_already_set();
    }
    return py::reinterpret_steal<py::str>(decoded);
}

py::array_t<int32_t> token_array(const std::vector<llama_token> & tokens) {
    return py::array_t<int32_t>(static_cast<py::ssize_t>(tokens.size()), tokens.data());
}

}  // namespace pyspec
