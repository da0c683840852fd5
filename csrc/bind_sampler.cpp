#include <pybind11/stl.h>

#include "bind.hpp"

#include "errors.hpp"
#include "sampler.hpp"

namespace pyspec {

namespace {

// Reads the attributes of a SamplingOptions by name; what has another type is refused by its name.
class Reader {
public:
    explicit Reader(py::handle options) : options_(options) {}

    void read(const char * name, double & value) const {
        const py::object item = get(name);
        value = PyFloat_Check(item.ptr()) || PyIndex_Check(item.ptr()) ? number(name, item)
                                                                       : refuse(name, item, "a number");
    }
    void read(const char * name, int64_t & value) const { value = whole(name, get(name)); }
    void read(const char * name, std::string & value) const { value = text(name, get(name)); }
    void read(const char * name, std::optional<int64_t> & value) const {
        const py::object item = get(name);
        value = item.is_none() ? std::nullopt : std::optional<int64_t>(whole(name, item));
    }
    void read(const char * name, std::optional<std::string> & value) const {
        const py::object item = get(name);
        value = item.is_none() ? std::nullopt : std::optional<std::string>(text(name, item));
    }
    void read(const char * name, std::vector<std::string> & values) const {
        for (const py::handle item : items(name, "a sequence of texts")) {
            values.push_back(text(name, item));
        }
    }
    void read(const char * name, std::vector<std::pair<int64_t, double>> & values) const {
        const char * allowed = "pairs of token id and number";
        for (const py::handle item : items(name, allowed)) {
            if (!py::isinstance<py::tuple>(item) || py::len(item) != 2) {
                refuse(name, item, allowed);
            }
            const auto pair = py::reinterpret_borrow<py::tuple>(item);
            values.emplace_back(whole(name, pair[0]), number(name, pair[1]));
        }
    }

private:
    py::object get(const char * name) const {
        if (!py::hasattr(options_, name)) {
            refuse("options", options_, std::string("a pyspec.config.SamplingOptions (it has no '") + name + "')");
        }
        return options_.attr(name);
    }

    [[noreturn]] static double refuse(const char * name, py::handle value, const std::string & allowed) {
        invalid_value(name, py::repr(value).cast<std::string>(), allowed);
    }

    static double number(const char * name, py::handle item) {
        const double value = PyBool_Check(item.ptr()) ? -1.0 : PyFloat_AsDouble(item.ptr());
        if (PyBool_Check(item.ptr()) || PyErr_Occurred() != nullptr) {
            PyErr_Clear();
            refuse(name, item, "a number");
        }
        return value;
    }

    static int64_t whole(const char * name, py::handle item) {
        const char * allowed = "a whole number of at most 64 bits";
        if (!PyIndex_Check(item.ptr()) || PyBool_Check(item.ptr())) {
            refuse(name, item, allowed);
        }
        const int64_t value = PyLong_AsLongLong(item.ptr());
        if (PyErr_Occurred() != nullptr) {
            PyErr_Clear();
            refuse(name, item, allowed);
        }
        return value;
    }

    static std::string text(const char * name, py::handle item) {
        Py_ssize_t n_bytes = 0;
        const char * bytes = PyUnicode_Check(item.ptr()) ? PyUnicode_AsUTF8AndSize(item.ptr(), &n_bytes) : nullptr;
        if (bytes == nullptr) {
            PyErr_Clear();
            refuse(name, item, "text that UTF-8 can hold");
        }
        return {bytes, static_cast<size_t>(n_bytes)};
    }

    py::tuple items(const char * name, const char * allowed) const {
        const py::object item = get(name);
        if (!py::isinstance<py::tuple>(item) && !py::isinstance<py::list>(item)) {
            refuse(name, item, allowed);
        }
        return py::tuple(item);
    }

    py::handle options_;
};

SamplerOptions read_options(py::handle source) {
    const Reader reader(source);
    SamplerOptions options;
    reader.read("seed", options.seed);
    reader.read("temperature", options.temperature);
    reader.read("dynatemp_range", options.dynatemp_range);
    reader.read("dynatemp_exponent", options.dynatemp_exponent);
    reader.read("top_k", options.top_k);
    reader.read("top_p", options.top_p);
    reader.read("min_p", options.min_p);
    reader.read("typical_p", options.typical_p);
    reader.read("xtc_probability", options.xtc_probability);
    reader.read("xtc_threshold", options.xtc_threshold);
    reader.read("mirostat", options.mirostat);
    reader.read("mirostat_tau", options.mirostat_tau);
    reader.read("mirostat_eta", options.mirostat_eta);
    reader.read("penalty_last_n", options.penalty_last_n);
    reader.read("repeat_penalty", options.repeat_penalty);
    reader.read("frequency_penalty", options.frequency_penalty);
    reader.read("presence_penalty", options.presence_penalty);
    reader.read("dry_multiplier", options.dry_multiplier);
    reader.read("dry_base", options.dry_base);
    reader.read("dry_allowed_length", options.dry_allowed_length);
    reader.read("dry_penalty_last_n", options.dry_penalty_last_n);
    reader.read("dry_sequence_breakers", options.dry_sequence_breakers);
    reader.read("logit_bias", options.logit_bias);
    reader.read("grammar", options.grammar);
    reader.read("grammar_root", options.grammar_root);
    reader.read("min_keep", options.min_keep);
    return options;
}

template <typename T>
py::array_t<T> array_of(const std::vector<T> & values) {
    return py::array_t<T>(static_cast<py::ssize_t>(values.size()), values.data());
}

// None, or uint32 words of the sampler's number; lent for one call.
TokenMask read_mask(const Sampler & sampler, const py::object & mask) {
    if (mask.is_none()) {
        return nullptr;
    }
    using Words = py::array_t<uint32_t, py::array::c_style>;
    const std::string allowed = "a contiguous uint32 array of " + std::to_string(sampler.n_mask_words()) + " words";
    if (!Words::check_(mask)) {
        invalid_value("mask", py::repr(mask).cast<std::string>(), allowed);
    }
    const auto words = py::reinterpret_borrow<Words>(mask);
    if (words.ndim() != 1 || static_cast<size_t>(words.size()) < sampler.n_mask_words()) {
        invalid_value("mask", "an array of " + std::to_string(words.size()) + " words", allowed);
    }
    return words.data();
}

}  // namespace

void register_sampler(py::module_ & m) {
    using Released = py::call_guard<LogHandover, py::gil_scoped_release>;

    py::class_<Sampler, std::shared_ptr<Sampler>>(m, "Sampler", py::is_final())
        .def(py::init([](const std::shared_ptr<Model> & model, py::handle source) {
                 const SamplerOptions options = read_options(source);
                 const LogHandover handover;
                 const py::gil_scoped_release release;
                 return freed_without_gil(new Sampler(*model, options));
             }),
             py::arg("model").none(false), py::arg("options"))
        .def_property_readonly("seed", &Sampler::seed)
        .def_property_readonly("names", &Sampler::names)
        .def_property_readonly("is_greedy", &Sampler::is_greedy)
        .def(
            "sample",
            [](Sampler & self, const std::shared_ptr<Context> & context, int64_t row, const py::object & mask,
               bool again) {
                const TokenMask words = read_mask(self, mask);
                const py::gil_scoped_release release;
                return self.sample(*context, row, words, again);
            },
            py::arg("context").none(false), py::arg("row"), py::arg("mask") = py::none(), py::kw_only(),
            py::arg("again") = false)
        .def(
            "probabilities",
            [](Sampler & self, const std::shared_ptr<Context> & context, int64_t row, const py::object & mask) {
                const TokenMask words = read_mask(self, mask);
                Sampler::Distribution law;
                {
                    const py::gil_scoped_release release;
                    law = self.distribution(*context, row, words);
                }
                return py::make_tuple(array_of(law.tokens), array_of(law.probabilities));
            },
            py::arg("context").none(false), py::arg("row"), py::arg("mask") = py::none())
        .def("accept", &Sampler::accept, py::arg("token"), py::kw_only(), py::arg("prompt") = false,
             py::call_guard<py::gil_scoped_release>())
        .def("reset", &Sampler::reset, Released())
        .def("clone", [](Sampler & self) { return freed_without_gil(self.clone().release()); }, Released());
}

}  // namespace pyspec
