#include <pybind11/functional.h>
#include <pybind11/stl.h>

#include "bind.hpp"
#include "model.hpp"
#include "vocab.hpp"

namespace pyspec {

namespace {

// None from the callback means go on.
std::function<bool(float)> with_gil(const py::object & callback) {
    if (callback.is_none()) {
        return nullptr;
    }
    return [callback](float fraction) {
        const py::gil_scoped_acquire acquire;
        const py::object answer = callback(fraction);
        const int goes_on = answer.is_none() ? 1 : PyObject_IsTrue(answer.ptr());
        if (goes_on < 0) {
            throw py::error_already_set();
        }
        return goes_on != 0;
    };
}

std::shared_ptr<Model> load(const py::object & path, int64_t n_gpu_layers,
                            const std::optional<std::vector<std::string>> & devices, int64_t main_gpu,
                            const std::string & split_mode, const std::optional<std::vector<float>> & tensor_split,
                            bool use_mmap, bool use_mlock, bool use_extra_bufts, bool check_tensors, bool vocab_only,
                            const py::object & progress) {
    ModelOptions options;
    options.path = path_bytes(path);
    options.n_gpu_layers = n_gpu_layers;
    options.devices = devices;
    options.main_gpu = main_gpu;
    options.split_mode = split_mode;
    options.tensor_split = tensor_split.value_or(std::vector<float>());
    options.use_mmap = use_mmap;
    options.use_mlock = use_mlock;
    options.use_extra_bufts = use_extra_bufts;
    options.check_tensors = check_tensors;
    options.vocab_only = vocab_only;
    options.progress = with_gil(progress);
    const LogHandover log;
    const GilRelease release;
    return freed_without_gil(new Model(options));
}

py::dict metadata(const Model & self) {
    py::dict values;
    for (const auto & [key, value] : self.metadata()) {
        values[lossy_text(key)] = lossy_text(value);
    }
    return values;
}

py::object chat_template(const Model & self, const std::optional<std::string> & name) {
    const std::optional<std::string> text = self.chat_template(name);
    return text ? py::object(lossy_text(*text)) : py::object(py::none());
}

void close(Model & self) {
    const GilRelease release;
    self.close();
}

}  // namespace

void register_model(py::module_ & m) {
    py::class_<Model, std::shared_ptr<Model>>(
        m, "Model", py::is_final(),
        "A loaded GGUF model. Read only, may be shared by contexts and threads.\n\n"
        "Raises:\n"
        "    ModelLoadError: the file is missing, damaged or of an unknown architecture (with llama.cpp's own "
        "reason).\n"
        "    LoadCancelledError: `progress` returned False.\n"
        "    Any exception raised by `progress` itself is passed on.")
        .def(py::init(&load), py::arg("path"), py::kw_only(), py::arg("n_gpu_layers") = -1,
             py::arg("devices") = py::none(), py::arg("main_gpu") = 0, py::arg("split_mode") = "layer",
             py::arg("tensor_split") = py::none(), py::arg("use_mmap") = true, py::arg("use_mlock") = false,
             py::arg("use_extra_bufts") = true, py::arg("check_tensors") = false, py::arg("vocab_only") = false,
             py::arg("progress") = py::none())
        .def_property_readonly("path", [](const Model & self) { return path_text(self.path()); })
        .def_property_readonly("description", [](const Model & self) { return lossy_text(self.description()); })
        .def_property_readonly("architecture", [](const Model & self) { return lossy_text(self.architecture()); })
        .def_property_readonly("memory_kind", &Model::memory_kind)
        .def_property_readonly("metadata", &metadata)
        .def_property_readonly("vocab", [](const Model & self) { return freed_without_gil(new Vocab(self)); })
        .def_property_readonly("vocab_only", &Model::vocab_only)
        .def_property_readonly("n_gpu_layers", &Model::n_gpu_layers)
        .def_property_readonly("n_ctx_train", &Model::n_ctx_train)
        .def_property_readonly("n_embd", &Model::n_embd)
        .def_property_readonly("n_layer", &Model::n_layer)
        .def_property_readonly("n_head", &Model::n_head)
        .def_property_readonly("n_head_kv", &Model::n_head_kv)
        .def_property_readonly("n_swa", &Model::n_swa)
        .def_property_readonly("n_params", [](const Model & self) { return llama_model_n_params(self.get()); })
        .def_property_readonly("n_bytes", [](const Model & self) { return llama_model_size(self.get()); })
        .def_property_readonly("quantization", [](const Model & self) { return lossy_text(self.quantization()); })
        .def_property_readonly("has_encoder", [](const Model & self) { return llama_model_has_encoder(self.get()); })
        .def_property_readonly("has_decoder", [](const Model & self) { return llama_model_has_decoder(self.get()); })
        .def_property_readonly("is_recurrent", [](const Model & self) { return llama_model_is_recurrent(self.get()); })
        .def_property_readonly("is_hybrid", [](const Model & self) { return llama_model_is_hybrid(self.get()); })
        .def_property_readonly("is_diffusion", [](const Model & self) { return llama_model_is_diffusion(self.get()); })
        .def("chat_template", &chat_template, py::arg("name") = py::none())
        .def("close", &close,
             "Forbid new use; memory is freed when the last context, vocabulary and sampler of it are gone.")
        .def_property_readonly("closed", &Model::closed);
}

}  // namespace pyspec
