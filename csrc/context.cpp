#include "context.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <exception>
#include <limits>
#include <set>
#include <sstream>
#include <utility>

#include "backend.hpp"
#include "digest.hpp"
#include "errors.hpp"
#include "log.hpp"

namespace pyspec {

namespace {

constexpr int64_t max_threads = 512;  // GGML_MAX_N_THREADS
constexpr int64_t max_size = std::numeric_limits<int32_t>::max() - 1024;

std::atomic<uint64_t> next_uid{1};

struct KvType {
    const char * name;
    ggml_type type;
};

// The types that llama.cpp's own tools offer for the cache (common/arg.cpp).
constexpr KvType kv_types[] = {
    {"f32", GGML_TYPE_F32},       {"f16", GGML_TYPE_F16},   {"bf16", GGML_TYPE_BF16},
    {"q8_0", GGML_TYPE_Q8_0},     {"q4_0", GGML_TYPE_Q4_0}, {"q4_1", GGML_TYPE_Q4_1},
    {"iq4_nl", GGML_TYPE_IQ4_NL}, {"q5_0", GGML_TYPE_Q5_0}, {"q5_1", GGML_TYPE_Q5_1},
};

ggml_type kv_type_of(const std::string & argument, const std::string & name) {
    std::string known;
    for (const KvType & candidate : kv_types) {
        if (name == candidate.name) {
            return candidate.type;
        }
        known += std::string(known.empty() ? "'" : ", '") + candidate.name + "'";
    }
    invalid_value(argument, name, "one of " + known);
}

uint32_t checked_size(const char * name, int64_t value, int64_t low, int64_t high = max_size) {
    if (value < low || value > high) {
        invalid_value(name, value, "from " + std::to_string(low) + " to " + std::to_string(high));
    }
    return static_cast<uint32_t>(value);
}

float checked_float(const char * name, double value, double low) {
    if (!std::isfinite(value) || value < low || value > std::numeric_limits<float>::max()) {
        invalid_value(name, value, "a finite number >= " + std::to_string(low));
    }
    return static_cast<float>(value);
}

// Zero means as many as there are cores for this process.
int32_t threads_of(const char * name, int64_t value) {
    const uint32_t n = checked_size(name, value, 0, max_threads);
    return n == 0 ? usable_cores() : static_cast<int32_t>(n);
}

llama_rope_scaling_type rope_scaling_of(const std::optional<std::string> & name) {
    if (!name) {
        return LLAMA_ROPE_SCALING_TYPE_UNSPECIFIED;
    }
    if (*name == "none") {
        return LLAMA_ROPE_SCALING_TYPE_NONE;
    }
    if (*name == "linear") {
        return LLAMA_ROPE_SCALING_TYPE_LINEAR;
    }
    if (*name == "yarn") {
        return LLAMA_ROPE_SCALING_TYPE_YARN;
    }
    if (*name == "longrope") {
        return LLAMA_ROPE_SCALING_TYPE_LONGROPE;
    }
    invalid_value("rope_scaling", *name, "None, 'none', 'linear', 'yarn' or 'longrope'");
}

llama_flash_attn_type flash_attn_of(std::optional<bool> wanted) {
    if (!wanted) {
        return LLAMA_FLASH_ATTN_TYPE_AUTO;
    }
    return *wanted ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
}

// Models that cannot continue a text by themselves.
void check_model(const Model & model) {
    const llama_model * native = model.get();
    const std::string what = "a context for a model of architecture '" + model.architecture() + "'";
    if (model.vocab_only()) {
        unsupported("a context", "the model was loaded with vocab_only=True", "load it without");
    }
    if (llama_model_is_diffusion(native)) {
        unsupported(what, "it is a diffusion model, which does not predict the next token");
    }
    if (llama_model_has_encoder(native)) {
        unsupported(what, llama_model_has_decoder(native) ? "it needs the output of an encoder" : "it is an encoder");
    }
    // The vector code for RWKV 7 steps through a head by 64 and writes past the end of one that is no multiple of it.
    const std::string architecture = model.architecture();
    if (architecture == "rwkv7" || architecture == "arwkv7") {
        const std::string size = metadata_value(native, architecture + ".wkv.head_size").value_or("64");
        if (std::strtol(size.c_str(), nullptr, 10) % 64 != 0) {
            unsupported(what,
                        "its " + architecture + ".wkv.head_size is " + size
                            + ", and llama.cpp computes heads of a multiple of 64 only",
                        "use a model with heads of 64, as all published ones have");
        }
    }
    if (model.memory_kind() == "none") {
        unsupported(what, "it is an encoder");
    }
}

bool needs_unified_cache(const std::string & architecture) {
    return architecture == "kimi-linear";
}

// llama.cpp asserts that blocks divide a row of the cache only when flash attention is on.
void check_quantized_rows(const Model & model, const llama_context_params & params) {
    const llama_model * native = model.get();
    const std::string prefix = model.architecture() + ".attention.";
    const int32_t n_head = std::max(1, model.n_head());
    for (const bool is_k : {true, false}) {
        const ggml_type type = is_k ? params.type_k : params.type_v;
        const auto stored = metadata_value(native, prefix + (is_k ? "key_length" : "value_length"));
        const int64_t head = stored ? std::strtoll(stored->c_str(), nullptr, 10) : model.n_embd() / n_head;
        const int64_t block = ggml_blck_size(type);
        if (block > 1 && head > 0 && head % block != 0) {
            invalid_value(is_k ? "type_k" : "type_v", std::string(ggml_type_name(type)),
                          "an unquantized type: its blocks of " + std::to_string(block)
                              + " values do not divide the model's heads of " + std::to_string(head));
        }
    }
}

// Its graph cannot split the keys of several sequences and aborts.
void check_streams(const Model & model, const llama_context_params & params) {
    if (!params.kv_unified && params.n_seq_max > 1 && needs_unified_cache(model.architecture())) {
        unsupported("kv_unified=False with several sequences",
                    "llama.cpp does not support it for architecture '" + model.architecture() + "'",
                    "leave kv_unified at None");
    }
}

llama_context_params params_of(const Model & model, const ContextOptions & options) {
    llama_context_params params = llama_context_default_params();
    const llama_context_params defaults = params;
    params.n_ctx = checked_size("n_ctx", options.n_ctx, 0);
    params.n_batch = checked_size("n_batch", options.n_batch, 0);
    params.n_ubatch = checked_size("n_ubatch", options.n_ubatch, 0);
    params.n_seq_max =
        checked_size("n_seq_max", options.n_seq_max, 1, static_cast<int64_t>(llama_max_parallel_sequences()));
    // Each state kept adds nodes to the graph, whose size llama.cpp fixes by the number of tensors and asserts.
    const int64_t n_rs_seq_max = model.architecture().rfind("lfm2", 0) == 0 ? 12 : 32;
    params.n_rs_seq = checked_size("n_rs_seq", options.n_rs_seq, 0, n_rs_seq_max);
    params.n_batch = params.n_batch == 0 ? defaults.n_batch : params.n_batch;
    params.n_ubatch = params.n_ubatch == 0 ? defaults.n_ubatch : params.n_ubatch;
    params.n_threads = threads_of("n_threads", options.n_threads);
    params.n_threads_batch = threads_of("n_threads_batch", options.n_threads_batch);

    params.flash_attn_type = flash_attn_of(options.flash_attn);
    params.type_k = kv_type_of("type_k", options.type_k);
    params.type_v = kv_type_of("type_v", options.type_v);
    if (ggml_is_quantized(params.type_v) && params.flash_attn_type == LLAMA_FLASH_ATTN_TYPE_DISABLED) {
        invalid_value("type_v", options.type_v, "'f32', 'f16' or 'bf16' with flash_attn=False");
    }
    check_quantized_rows(model, params);

    params.offload_kqv = options.offload_kqv;
    params.op_offload = options.op_offload;
    params.swa_full = options.swa_full;
    params.kv_unified = options.kv_unified.value_or(params.n_seq_max > 1);
    params.no_perf = false;
    check_streams(model, params);

    params.rope_scaling_type = rope_scaling_of(options.rope_scaling);
    params.rope_freq_base = checked_float("rope_freq_base", options.rope_freq_base, 0.0);
    params.rope_freq_scale = checked_float("rope_freq_scale", options.rope_freq_scale, 0.0);
    params.yarn_ext_factor = checked_float("yarn_ext_factor", options.yarn_ext_factor, -1.0);
    params.yarn_attn_factor = checked_float("yarn_attn_factor", options.yarn_attn_factor, -1.0);
    params.yarn_beta_fast = checked_float("yarn_beta_fast", options.yarn_beta_fast, -1.0);
    params.yarn_beta_slow = checked_float("yarn_beta_slow", options.yarn_beta_slow, -1.0);
    params.yarn_orig_ctx = checked_size("yarn_orig_ctx", options.yarn_orig_ctx, 0);

    // llama.cpp asserts that there is an output row for every sequence, and one decode's rows must fit as well.
    const uint32_t n_ctx = params.n_ctx == 0 ? static_cast<uint32_t>(model.n_ctx_train()) : params.n_ctx;
    const uint32_t n_batch = std::min(n_ctx, params.n_batch);
    const uint32_t n_outputs_max = checked_size("n_outputs_max", options.n_outputs_max, 0);
    if (n_outputs_max != 0 && n_outputs_max < params.n_seq_max) {
        invalid_value("n_outputs_max", options.n_outputs_max,
                      "0 or at least n_seq_max (" + std::to_string(params.n_seq_max) + ")");
    }
    params.n_outputs_max = n_outputs_max != 0 ? n_outputs_max : std::max(n_batch, params.n_seq_max);
    params.n_outputs_max_per_seq = 0;
    return params;
}

// Everything that llama.cpp's text of a sequence's state depends on without checking it.
uint64_t hash_of(const Model & model) {
    std::ostringstream text;
    for (const auto & [key, value] : model.metadata()) {
        text << key << '=' << value << '\n';
    }
    const llama_model * native = model.get();
    text << llama_model_n_params(native) << ' ' << llama_model_size(native) << ' ' << model.description();
    return digest(text.str());
}

uint64_t hash_of(const llama_context_params & params, bool v_is_transposed, uint32_t n_streams, float freq_scale) {
    std::ostringstream text;
    text << params.type_k << ' ' << params.type_v << ' ' << v_is_transposed << ' ' << n_streams << ' '
         << params.rope_scaling_type << ' ' << params.rope_freq_base << ' ' << params.rope_freq_scale << ' '
         << params.yarn_ext_factor << ' ' << params.yarn_attn_factor << ' ' << params.yarn_beta_fast << ' '
         << params.yarn_beta_slow << ' ' << params.yarn_orig_ctx << ' ' << freq_scale;
    return digest(text.str());
}

}  // namespace

Context::Context(std::shared_ptr<Model> model, const ContextOptions & options)
    : model_(std::move(model)), native_model_(model_->share()), uid_(next_uid++) {
    check_model(*model_);
    llama_context_params params = params_of(*model_, options);
    params.abort_callback = on_abort_poll;
    params.abort_callback_data = this;
    interrupt_.start();

    const LogCapture log;
    llama_context * created = nullptr;
    try {
        created = llama_init_from_model(native_model_.get(), params);
    } catch (const std::exception & error) {
        throw Error("ContextCreateError", {{"reason", log.reason(error.what())}});
    }
    if (created == nullptr) {
        interrupt_.rethrow();
        throw Error("ContextCreateError", {{"reason", log.reason("llama.cpp gave no reason")}});
    }
    native_ = created;
    try {
        read_back(options, params);
    } catch (...) {
        llama_free(created);
        native_ = nullptr;
        throw;
    }
}

void Context::read_back(const ContextOptions & options, const llama_context_params & params) {
    llama_context * native = get();
    const std::string architecture = model_->architecture();
    memory_ = llama_get_memory(native);
    if (memory_ == nullptr || !llama_get_causal_attn(native)) {
        unsupported("a context for a model of architecture '" + architecture + "'",
                    "its attention looks at later tokens, so it does not predict the next one");
    }
    n_vocab_ = llama_vocab_n_tokens(llama_model_get_vocab(native_model_.get()));
    n_ctx_ = llama_n_ctx(native);
    n_ctx_seq_ = llama_n_ctx_seq(native);
    n_batch_ = llama_n_batch(native);
    n_ubatch_ = llama_n_ubatch(native);
    n_seq_max_ = llama_n_seq_max(native);
    n_rs_seq_ = llama_n_rs_seq(native);
    n_outputs_max_ = params.n_outputs_max;
    kv_unified_ = params.kv_unified;
    if (n_rs_seq_ > 0 && n_ubatch_ <= n_rs_seq_ + 1) {
        invalid_value("n_rs_seq", options.n_rs_seq,
                      "less than n_ubatch - 1 (" + std::to_string(static_cast<int64_t>(n_ubatch_) - 1) + ")");
    }

    const llama_model * model = native_model_.get();
    traits_ = Traits::of(*model_, params);
    const bool v_is_transposed = params.flash_attn_type == LLAMA_FLASH_ATTN_TYPE_DISABLED || architecture == "grok";
    model_hash_ = hash_of(*model_);
    settings_hash_ =
        hash_of(params, v_is_transposed, kv_unified_ ? 1 : n_seq_max_, llama_model_rope_freq_scale_train(model));

    pos_.resize(n_batch_);
    seq_ids_.resize(n_batch_);
    seq_id_ptrs_.resize(n_batch_ + 1, nullptr);
    n_seq_ids_.assign(n_batch_, 1);
    outputs_.resize(n_batch_);
    for (uint32_t i = 0; i < n_batch_; ++i) {
        seq_id_ptrs_[i] = &seq_ids_[i];
    }
    n_undoable_.assign(n_seq_max_, 0);
    rollback_pending_.assign(n_seq_max_, false);
    device_saves_.assign(n_seq_max_, 0);
}

Context::~Context() {
    llama_context * native = native_.exchange(nullptr);
    if (native != nullptr) {
        llama_free(native);
    }
}

void Context::close() {
    if (busy_.exchange(true, std::memory_order_acquire)) {
        busy_error("context");
    }
    llama_context * native = native_.exchange(nullptr);
    if (native != nullptr) {
        llama_free(native);
        memory_ = nullptr;
        native_model_.reset();
    }
    busy_.store(false, std::memory_order_release);
}

Context::Use::Use(Context & context) : context_(context) {
    if (context.busy_.exchange(true, std::memory_order_acquire)) {
        busy_error("context");
    }
    if (context.closed()) {
        context.busy_.store(false, std::memory_order_release);
        closed_error("context");
    }
}

Context::Use::~Use() {
    context_.busy_.store(false, std::memory_order_release);
}

llama_context * Context::get() const {
    llama_context * native = native_.load(std::memory_order_relaxed);
    if (native == nullptr) {
        closed_error("context");
    }
    return native;
}

int32_t Context::n_threads() const {
    return llama_n_threads(get());
}

int32_t Context::n_threads_batch() const {
    return llama_n_threads_batch(get());
}

void Context::set_n_threads(int64_t n_threads, int64_t n_threads_batch) {
    const int32_t decode_threads = threads_of("n_threads", n_threads);
    llama_set_n_threads(get(), decode_threads, threads_of("n_threads_batch", n_threads_batch));
}

void Context::synchronize() {
    llama_synchronize(get());
}

std::map<std::string, double> Context::perf() {
    llama_synchronize(get());
    const llama_perf_context_data data = llama_perf_context(get());
    // llama.cpp reports at least one token, so that its rates can be divided; time tells whether there was any.
    return {
        {"load_s", data.t_load_ms / 1e3},
        {"prompt_s", data.t_p_eval_ms / 1e3},
        {"eval_s", data.t_eval_ms / 1e3},
        {"n_prompt", data.t_p_eval_ms > 0 ? data.n_p_eval : 0},
        {"n_eval", data.t_eval_ms > 0 ? data.n_eval : 0},
        {"n_reused", data.n_reused},
    };
}

void Context::perf_reset() {
    llama_synchronize(get());
    llama_perf_context_reset(get());
}

}  // namespace pyspec
