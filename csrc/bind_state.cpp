#include "bind.hpp"
#include "state.hpp"

namespace pyspec {

namespace {

// A reference, because None would come as a null pointer.
using Self = State &;

py::array_t<uint8_t> view(Self self) {
    const State::Use use(self);
    auto * kept = new std::shared_ptr<uint8_t[]>(self.buffer());
    const py::capsule owner(kept, [](void * pointer) { delete static_cast<std::shared_ptr<uint8_t[]> *>(pointer); });
    py::array_t<uint8_t> array(static_cast<py::ssize_t>(self.n_bytes()), kept->get(), owner);
    array.attr("flags").attr("writeable") = false;
    return array;
}

py::bytes to_bytes(Self self) {
    std::string bytes;
    {
        const GilRelease release;
        const State::Use use(self);
        bytes = self.to_bytes();
    }
    return bytes;
}

std::shared_ptr<State> from_bytes(const py::bytes & data) {
    char * start = nullptr;
    Py_ssize_t n_bytes = 0;
    if (PyBytes_AsStringAndSize(data.ptr(), &start, &n_bytes) != 0) {
        throw py::error_already_set();
    }
    const GilRelease release;
    return State::from_bytes(start, static_cast<size_t>(n_bytes));
}

}  // namespace

void register_state(py::module_ & m) {
    m.attr("STATE_NONE") = LLAMA_STATE_SEQ_FLAGS_NONE;
    m.attr("STATE_PARTIAL_ONLY") = LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY;
    m.attr("STATE_ON_DEVICE") = LLAMA_STATE_SEQ_FLAGS_ON_DEVICE;

    py::class_<State, std::shared_ptr<State>>(
        m, "State", py::is_final(),
        "A reusable buffer that holds one sequence's state; grows on demand, never shrinks by itself.\n\n"
        "Filled only by `Context.state_save` or `State.from_bytes`, so its bytes can be trusted when given back.")
        .def(py::init<>())
        .def_property_readonly("n_bytes", &State::n_bytes)
        .def_property_readonly("capacity_bytes", &State::capacity_bytes)
        .def_property_readonly("flags", [](const State & self) { return self.origin().flags; })
        .def_property_readonly("pos_max", [](const State & self) { return self.origin().pos_max; })
        .def(
            "clear",
            [](Self self) {
                const State::Use use(self);
                self.clear();
            },
            "Forget the state and free the memory.")
        .def("view", &view,
             "The state's raw bytes, read only, without a copy. Shape [n_bytes]. Valid until the next save or clear.")
        .def("to_bytes", &to_bytes,
             "Header (magic, version, fingerprints, flags, position, length, checksum) and state.")
        .def_static("from_bytes", &from_bytes, py::arg("data"), "Inverse of `to_bytes`.");
}

}  // namespace pyspec
