#include "bind.hpp"
#include "errors.hpp"
#include "vocab.hpp"

namespace pyspec {

namespace {

using Special = llama_token (*)(const llama_vocab *);
// A reference, because None would come as a null pointer.
using Self = Vocab &;

py::object id_or_none(const Vocab & vocab, Special which) {
    const std::optional<llama_token> token = vocab.special(which);
    return token ? py::object(py::int_(*token)) : py::object(py::none());
}

template <Special which>
py::object special_id(const Vocab & self) {
    return id_or_none(self, which);
}

py::list eog_list(const Vocab & self) {
    py::list list;
    for (const llama_token token : self.eog_tokens()) {
        list.append(py::int_(token));
    }
    return list;
}

std::string text_bytes(const py::object & text) {
    if (PyBytes_Check(text.ptr()) != 0) {
        return text.cast<std::string>();
    }
    if (PyUnicode_Check(text.ptr()) != 0) {
        Py_ssize_t size = 0;
        const char * utf8 = PyUnicode_AsUTF8AndSize(text.ptr(), &size);
        if (utf8 == nullptr) {
            throw py::error_already_set();  // a lone surrogate: UnicodeEncodeError says where
        }
        return {utf8, static_cast<size_t>(size)};
    }
    invalid_value("text", py::repr(text).cast<std::string>(), "a str or bytes");
}

py::array_t<int32_t> tokenize(Self self, const py::object & text, bool add_special, bool parse_special) {
    const std::string bytes = text_bytes(text);
    const LogHandover log;
    std::vector<llama_token> tokens;
    {
        const GilRelease release;
        tokens = self.tokenize(bytes, add_special, parse_special);
    }
    return token_array(tokens);
}

py::bytes detokenize(Self self, const py::object & tokens, bool remove_special, bool unparse_special) {
    const IntSpan ids(tokens, "tokens");
    const LogHandover log;
    std::string text;
    {
        const GilRelease release;
        text = self.detokenize(ids.data(), ids.size(), remove_special, unparse_special);
    }
    return text;
}

py::list differences(Self self, const Vocab & other, int64_t limit) {
    std::vector<std::string> found;
    {
        const GilRelease release;
        found = self.differences(other, limit);
    }
    py::list list;
    for (const std::string & difference : found) {
        list.append(lossy_text(difference));
    }
    return list;
}

}  // namespace

void register_vocab(py::module_ & m) {
    py::class_<Vocab, std::shared_ptr<Vocab>>(m, "Vocab", py::is_final(),
                                              "The vocabulary of a model. Keeps its model alive. Thread-safe.")
        .def_property_readonly("n_tokens", &Vocab::n_tokens)
        .def_property_readonly("kind", &Vocab::kind)
        .def_property_readonly("has_text", &Vocab::has_text)
        .def_property_readonly("bos", &special_id<llama_vocab_bos>)
        .def_property_readonly("eos", &special_id<llama_vocab_eos>)
        .def_property_readonly("eot", &special_id<llama_vocab_eot>)
        .def_property_readonly("sep", &special_id<llama_vocab_sep>)
        .def_property_readonly("nl", &special_id<llama_vocab_nl>)
        .def_property_readonly("pad", &special_id<llama_vocab_pad>)
        .def_property_readonly("mask", &special_id<llama_vocab_mask>)
        .def_property_readonly("fim_pre", &special_id<llama_vocab_fim_pre>)
        .def_property_readonly("fim_suf", &special_id<llama_vocab_fim_suf>)
        .def_property_readonly("fim_mid", &special_id<llama_vocab_fim_mid>)
        .def_property_readonly("add_bos", &Vocab::add_bos)
        .def_property_readonly("add_eos", &Vocab::add_eos)
        .def_property_readonly("eog_tokens", &eog_list)
        .def("is_eog", &Vocab::is_eog, py::arg("token"))
        .def("is_control", &Vocab::is_control, py::arg("token"))
        .def(
            "text", [](const Vocab & self, int64_t token) { return lossy_text(self.text(token)); }, py::arg("token"))
        .def("score", &Vocab::score, py::arg("token"))
        .def("tokenize", &tokenize, py::arg("text"), py::kw_only(), py::arg("add_special") = true,
             py::arg("parse_special") = false)
        .def("detokenize", &detokenize, py::arg("tokens"), py::kw_only(), py::arg("remove_special") = false,
             py::arg("unparse_special") = false)
        .def(
            "token_to_piece",
            [](const Vocab & self, int64_t token, bool special) {
                return py::bytes(self.token_to_piece(token, special));
            },
            py::arg("token"), py::kw_only(), py::arg("special") = false)
        .def("differences", &differences, py::arg("other").none(false), py::kw_only(), py::arg("limit") = 8);
}

}  // namespace pyspec
