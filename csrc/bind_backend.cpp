#include "backend.hpp"
#include "bind.hpp"

namespace pyspec {

namespace {

py::list device_list() {
    const LogHandover log;
    std::vector<Device> found;
    {
        const GilRelease release;
        found = devices();
    }
    py::list list;
    for (Device & device : found) {
        list.append(std::move(device));
    }
    return list;
}

py::list backend_list() {
    py::list list;
    for (const std::string & name : backends()) {
        list.append(lossy_text(name));
    }
    return list;
}

void load_from(const py::object & folder) {
    const std::string path = path_bytes(folder);
    const LogHandover log;
    const GilRelease release;
    load_backends(path);
}

}  // namespace

void register_backend(py::module_ & m) {
    py::class_<Device>(m, "Device", py::is_final(),
                       "A compute device that llama.cpp found. Memory in bytes, as its driver reports it.")
        .def_property_readonly("name", [](const Device & self) { return lossy_text(self.name); })
        .def_property_readonly("description", [](const Device & self) { return lossy_text(self.description); })
        .def_property_readonly("kind", [](const Device & self) { return self.kind; })
        .def_property_readonly("backend", [](const Device & self) { return lossy_text(self.backend); })
        .def_property_readonly("memory_free_bytes", [](const Device & self) { return self.memory_free_bytes; })
        .def_property_readonly("memory_total_bytes", [](const Device & self) { return self.memory_total_bytes; });

    m.def("devices", &device_list, "Every compute device that llama.cpp found.");
    m.def("backends", &backend_list, "Names of the backends compiled in or loaded, e.g. `[\"CPU\", \"CUDA\"]`.");
    m.def("load_backends", &load_from, py::arg("folder"),
          "Load the backends that lie as shared libraries in `folder` (portable builds); once, idempotent.");
    m.def("system_info", [] { return lossy_text(system_info()); }, "llama.cpp's line about CPU features and threads.");
    m.def("supports_gpu_offload", &supports_gpu_offload, "Whether a backend for GPUs is there.");
}

}  // namespace pyspec
