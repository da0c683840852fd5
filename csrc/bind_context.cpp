#include <pybind11/stl.h>

#include "bind.hpp"
#include "context.hpp"
#include "errors.hpp"
#include "state.hpp"

namespace pyspec {

namespace {

// A reference, because None would come as a null pointer.
using Self = Context &;

std::shared_ptr<Context> create(const std::shared_ptr<Model> & model, int64_t n_ctx, int64_t n_batch, int64_t n_ubatch,
                                int64_t n_seq_max, int64_t n_rs_seq, int64_t n_outputs_max, int64_t n_threads,
                                int64_t n_threads_batch, std::optional<bool> flash_attn, const std::string & type_k,
                                const std::string & type_v, bool offload_kqv, bool op_offload, bool swa_full,
                                std::optional<bool> kv_unified, const std::optional<std::string> & rope_scaling,
                                double rope_freq_base, double rope_freq_scale, double yarn_ext_factor,
                                double yarn_attn_factor, double yarn_beta_fast, double yarn_beta_slow,
                                int64_t yarn_orig_ctx) {
    ContextOptions options;
    options.n_ctx = n_ctx;
    options.n_batch = n_batch;
    options.n_ubatch = n_ubatch;
    options.n_seq_max = n_seq_max;
    options.n_rs_seq = n_rs_seq;
    options.n_outputs_max = n_outputs_max;
    options.n_threads = n_threads;
    options.n_threads_batch = n_threads_batch;
    options.flash_attn = flash_attn;
    options.type_k = type_k;
    options.type_v = type_v;
    options.offload_kqv = offload_kqv;
    options.op_offload = op_offload;
    options.swa_full = swa_full;
    options.kv_unified = kv_unified;
    options.rope_scaling = rope_scaling;
    options.rope_freq_base = rope_freq_base;
    options.rope_freq_scale = rope_freq_scale;
    options.yarn_ext_factor = yarn_ext_factor;
    options.yarn_attn_factor = yarn_attn_factor;
    options.yarn_beta_fast = yarn_beta_fast;
    options.yarn_beta_slow = yarn_beta_slow;
    options.yarn_orig_ctx = yarn_orig_ctx;
    const LogHandover log;
    const GilRelease release;
    return freed_without_gil(new Context(model, options));
}

// Release the GIL, enter the context, call; messages are handed over at the end.
template <typename Result, typename... Parameters>
auto guarded(Result (Context::*method)(Parameters...)) {
    return [method](Self self, std::common_type_t<Parameters>... arguments) -> Result {
        const LogHandover log;
        const GilRelease release;
        const Context::Use use(self);
        return (self.*method)(arguments...);
    };
}

template <typename Result, typename... Parameters>
auto guarded(Result (Context::*method)(Parameters...) const) {
    return [method](Self self, std::common_type_t<Parameters>... arguments) -> Result {
        const GilRelease release;
        const Context::Use use(self);
        return (self.*method)(arguments...);
    };
}

void decode(Self self, const py::object & tokens, int64_t pos, int64_t seq_id, int64_t n_outputs) {
    const IntSpan ids(tokens, "tokens");
    const LogHandover log;
    const GilRelease release;
    const Context::Use use(self);
    self.decode(ids.data(), ids.size(), pos, seq_id, n_outputs);
}

void decode_batch(Self self, const py::object & tokens, const py::object & pos, const py::object & seq_ids,
                  const py::object & outputs) {
    const IntSpan ids(tokens, "tokens");
    const IntSpan positions(pos, "pos");
    const IntSpan sequences(seq_ids, "seq_ids");
    const std::vector<int8_t> flags = bool_array(outputs, "outputs");
    const auto same_size = [&](const char * name, int64_t n) {
        if (n != ids.size()) {
            invalid_value(name, n, "as long as tokens (" + std::to_string(ids.size()) + ")");
        }
    };
    same_size("pos", positions.size());
    same_size("seq_ids", sequences.size());
    same_size("outputs", static_cast<int64_t>(flags.size()));
    const LogHandover log;
    const GilRelease release;
    const Context::Use use(self);
    self.decode_batch({ids.size(), ids.data(), positions.data(), sequences.data(), flags.data()});
}

int64_t rows_or_rest(const Context & context, int64_t first_row, std::optional<int64_t> n_rows) {
    return n_rows ? *n_rows : std::max<int64_t>(1, context.n_outputs() - first_row);
}

py::array_t<float> logits(Self self, int64_t first_row, std::optional<int64_t> n_rows) {
    const Context::Use use(self);
    const int64_t n = rows_or_rest(self, first_row, n_rows);
    const float * rows = nullptr;
    {
        const GilRelease release;
        rows = self.logits_rows(first_row, n);
    }
    py::array_t<float> copy({static_cast<py::ssize_t>(n), static_cast<py::ssize_t>(self.n_vocab())});
    float * target = copy.mutable_data();
    const GilRelease release;
    std::copy_n(rows, static_cast<size_t>(n) * static_cast<size_t>(self.n_vocab()), target);
    return copy;
}

int32_t argmax(Self self, int64_t row) {
    llama_token token = 0;
    const GilRelease release;
    const Context::Use use(self);
    self.argmax_rows(row, 1, &token);
    return token;
}

py::array_t<int32_t> argmax_rows(Self self, int64_t first_row, std::optional<int64_t> n_rows) {
    const Context::Use use(self);
    const int64_t n = rows_or_rest(self, first_row, n_rows);
    self.check_rows(first_row, n);
    py::array_t<int32_t> tokens(static_cast<py::ssize_t>(n));
    int32_t * target = tokens.mutable_data();
    const GilRelease release;
    self.argmax_rows(first_row, n, target);
    return tokens;
}

size_t state_save(Self self, int64_t seq_id, State & state, int64_t flags) {
    const LogHandover log;
    const GilRelease release;
    const Context::Use use(self);
    return self.state_save(seq_id, state, flags);
}

size_t state_restore(Self self, int64_t seq_id, State & state) {
    const LogHandover log;
    const GilRelease release;
    const Context::Use use(self);
    return self.state_restore(seq_id, state);
}

size_t state_save_file(Self self, const py::object & path, int64_t seq_id, const py::object & tokens) {
    const std::string bytes = path_bytes(path);
    const IntSpan ids(tokens, "tokens");
    const LogHandover log;
    const GilRelease release;
    const Context::Use use(self);
    return self.state_save_file(bytes, seq_id, std::vector<llama_token>(ids.data(), ids.data() + ids.size()));
}

py::array_t<int32_t> state_load_file(Self self, const py::object & path, int64_t seq_id) {
    const std::string bytes = path_bytes(path);
    const LogHandover log;
    std::vector<llama_token> tokens;
    {
        const GilRelease release;
        const Context::Use use(self);
        tokens = self.state_load_file(bytes, seq_id);
    }
    return token_array(tokens);
}

bool can_shift(Self self) {
    const Context::Use use(self);
    return self.can_shift();
}

using PyContext = py::class_<Context, std::shared_ptr<Context>>;

void bind_creation(PyContext & context) {
    context.def(py::init(&create), py::arg("model").none(false), py::kw_only(), py::arg("n_ctx") = 0,
                py::arg("n_batch") = 2048, py::arg("n_ubatch") = 512, py::arg("n_seq_max") = 1, py::arg("n_rs_seq") = 0,
                py::arg("n_outputs_max") = 0, py::arg("n_threads") = 0, py::arg("n_threads_batch") = 0,
                py::arg("flash_attn") = py::none(), py::arg("type_k") = "f16", py::arg("type_v") = "f16",
                py::arg("offload_kqv") = true, py::arg("op_offload") = true, py::arg("swa_full") = false,
                py::arg("kv_unified") = py::none(), py::arg("rope_scaling") = py::none(),
                py::arg("rope_freq_base") = 0.0, py::arg("rope_freq_scale") = 0.0, py::arg("yarn_ext_factor") = -1.0,
                py::arg("yarn_attn_factor") = -1.0, py::arg("yarn_beta_fast") = -1.0, py::arg("yarn_beta_slow") = -1.0,
                py::arg("yarn_orig_ctx") = 0);
}

void bind_facts(PyContext & context) {
    context.def_property_readonly("model", [](Self self) { return self.model(); })
        .def_property_readonly("n_ctx", &Context::n_ctx)
        .def_property_readonly("n_ctx_seq", &Context::n_ctx_seq)
        .def_property_readonly("n_batch", &Context::n_batch)
        .def_property_readonly("n_ubatch", &Context::n_ubatch)
        .def_property_readonly("n_seq_max", &Context::n_seq_max)
        .def_property_readonly("n_rs_seq", &Context::n_rs_seq)
        .def_property_readonly("n_outputs_max", &Context::n_outputs_max)
        .def_property_readonly("kv_unified", &Context::kv_unified)
        .def_property_readonly("mixes_sequences", &Context::mixes_sequences)
        .def_property_readonly("n_threads", &Context::n_threads)
        .def_property_readonly("n_threads_batch", &Context::n_threads_batch)
        .def_property_readonly("n_outputs", &Context::n_outputs)
        .def_property_readonly("can_shift", &can_shift)
        .def_property_readonly("closed", &Context::closed);
}

void bind_decoding(PyContext & context) {
    context.def("set_n_threads", guarded(&Context::set_n_threads), py::arg("n_threads"), py::arg("n_threads_batch"))
        .def("decode", &decode, py::arg("tokens"), py::kw_only(), py::arg("pos"), py::arg("seq_id") = 0,
             py::arg("n_outputs") = 1)
        .def("decode_batch", &decode_batch, py::arg("tokens"), py::arg("pos"), py::arg("seq_ids"), py::arg("outputs"))
        .def("abort", &Context::abort)
        .def("clear_abort", &Context::clear_abort)
        .def("logits", &logits, py::arg("first_row") = 0, py::arg("n_rows") = py::none())
        .def("argmax", &argmax, py::arg("row"))
        .def("argmax_rows", &argmax_rows, py::arg("first_row") = 0, py::arg("n_rows") = py::none());
}

void bind_memory(PyContext & context) {
    context.def("clear", guarded(&Context::clear))
        .def("seq_rm", guarded(&Context::seq_rm), py::arg("seq_id"), py::arg("p0") = -1, py::arg("p1") = -1)
        .def("seq_cp", guarded(&Context::seq_cp), py::arg("src"), py::arg("dst"), py::arg("p0") = -1,
             py::arg("p1") = -1)
        .def("can_seq_cp", guarded(&Context::can_seq_cp), py::kw_only(), py::arg("partial"))
        .def("seq_keep", guarded(&Context::seq_keep), py::arg("seq_id"))
        .def("seq_add", guarded(&Context::seq_add), py::arg("seq_id"), py::arg("p0"), py::arg("p1"), py::arg("delta"))
        .def("seq_pos_min", guarded(&Context::seq_pos_min), py::arg("seq_id"))
        .def("seq_pos_max", guarded(&Context::seq_pos_max), py::arg("seq_id"));
}

void bind_sequence_state(PyContext & context) {
    context.def("state_size", guarded(&Context::state_size), py::arg("seq_id"), py::arg("flags") = 0)
        .def("state_save", &state_save, py::arg("seq_id"), py::arg("state").none(false), py::arg("flags") = 0)
        .def("state_restore", &state_restore, py::arg("seq_id"), py::arg("state").none(false))
        .def("state_save_file", &state_save_file, py::arg("path"), py::arg("seq_id"), py::arg("tokens"))
        .def("state_load_file", &state_load_file, py::arg("path"), py::arg("seq_id"));
}

}  // namespace

void register_context(py::module_ & m) {
    PyContext context(m, "Context", py::is_final(),
                      "A llama_context: memory for `n_seq_max` sequences and room for one decode.");
    bind_creation(context);
    bind_facts(context);
    bind_decoding(context);
    bind_memory(context);
    bind_sequence_state(context);
    context.def("synchronize", guarded(&Context::synchronize))
        .def("perf", [](Self self) { return guarded(&Context::perf)(self); })
        .def("perf_reset", guarded(&Context::perf_reset))
        .def("close", [](Self self) {
            const LogHandover log;
            const GilRelease release;
            self.close();
        });
}

}  // namespace pyspec
