#include "model.hpp"

#include <sys/stat.h>

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <exception>
#include <limits>
#include <set>
#include <utility>

#include "backend.hpp"
#include "errors.hpp"
#include "interrupt.hpp"
#include "log.hpp"

namespace pyspec {

namespace {

[[noreturn]] void load_error(const std::string & path, const std::string & reason) {
    throw Error("ModelLoadError", {{"path", path}, {"reason", reason}});
}

int32_t checked_int32(const std::string & name, int64_t value, int64_t low) {
    const int64_t high = std::numeric_limits<int32_t>::max();
    if (value < low || value > high) {
        invalid_value(name, value, "from " + std::to_string(low) + " to " + std::to_string(high));
    }
    return static_cast<int32_t>(value);
}

// llama.cpp's own words for these are vague or missing.
void check_file(const std::string & path) {
    if (path.empty() || path.find('\0') != std::string::npos) {
        load_error(path, "the path is empty or contains a NUL character");
    }
    struct stat info{};
    if (stat(path.c_str(), &info) != 0) {
        load_error(path, std::strerror(errno));
    }
    if ((info.st_mode & S_IFMT) == S_IFDIR) {
        load_error(path, "it is a directory");
    }
    std::FILE * file = std::fopen(path.c_str(), "rb");
    if (file == nullptr) {
        load_error(path, std::strerror(errno));
    }
    char magic[4] = {};
    const size_t n_read = std::fread(magic, 1, sizeof(magic), file);
    std::fclose(file);
    if (n_read == 0) {
        load_error(path, "the file is empty");
    }
    if (n_read < sizeof(magic) || std::memcmp(magic, "GGUF", sizeof(magic)) != 0) {
        load_error(path, "it is not a GGUF file (its first bytes are not \"GGUF\")");
    }
}

llama_split_mode split_mode_of(const std::string & name) {
    if (name == "none") {
        return LLAMA_SPLIT_MODE_NONE;
    }
    if (name == "layer") {
        return LLAMA_SPLIT_MODE_LAYER;
    }
    if (name == "row") {
        return LLAMA_SPLIT_MODE_ROW;
    }
    invalid_value("split_mode", name, "'none', 'layer' or 'row'");
}

llama_load_mode load_mode_of(bool use_mmap, bool use_mlock) {
    if (use_mmap) {
        return use_mlock ? LLAMA_LOAD_MODE_MMAP_MLOCK : LLAMA_LOAD_MODE_MMAP;
    }
    return use_mlock ? LLAMA_LOAD_MODE_MLOCK : LLAMA_LOAD_MODE_NONE;
}

// llama.cpp reads llama_max_devices() numbers.
std::vector<float> padded_split(const std::vector<float> & split) {
    if (split.size() > llama_max_devices()) {
        invalid_value("tensor_split", static_cast<int64_t>(split.size()),
                      "at most " + std::to_string(llama_max_devices()) + " numbers, one for each device");
    }
    for (const float share : split) {
        if (!std::isfinite(share) || share < 0) {
            invalid_value("tensor_split", static_cast<double>(share), "finite numbers >= 0");
        }
    }
    std::vector<float> padded = split;
    padded.resize(llama_max_devices(), 0.0F);
    return padded;
}

// The CPU and its accelerators are always used, so only GPUs belong in llama.cpp's list.
std::vector<ggml_backend_dev_t> gpu_devices(const std::vector<std::string> & names) {
    std::vector<ggml_backend_dev_t> chosen;
    std::set<ggml_backend_dev_t> seen;
    for (const std::string & name : names) {
        ggml_backend_dev_t device = device_by_name(name);
        const auto type = ggml_backend_dev_type(device);
        const bool is_gpu = type == GGML_BACKEND_DEVICE_TYPE_GPU || type == GGML_BACKEND_DEVICE_TYPE_IGPU;
        if (is_gpu && seen.insert(device).second) {
            chosen.push_back(device);
        }
    }
    chosen.push_back(nullptr);
    return chosen;
}

struct Progress {
    const std::function<bool(float)> & callback;
    Interrupt interrupt;
    float last = 0.0F;
    bool cancelled = false;
    std::exception_ptr raised;

    static bool on_progress(float fraction, void * self) {
        auto & progress = *static_cast<Progress *>(self);
        progress.last = fraction;
        try {
            if (progress.interrupt.poll()) {
                return false;
            }
            if (progress.callback && !progress.callback(fraction)) {
                progress.cancelled = true;
                return false;
            }
        } catch (...) {
            progress.raised = std::current_exception();
            return false;
        }
        return true;
    }
};

// Architectures for which llama.cpp makes no memory besides the diffusion ones (create_memory in llama-model.cpp).
bool is_encoder_only(const std::string & architecture) {
    static const std::set<std::string> names = {
        "bert",        "jina-bert-v2", "jina-bert-v3",     "nomic-bert", "nomic-bert-moe",  "neo-bert",
        "modern-bert", "eurobert",     "wavtokenizer-dec", "t5encoder",  "gemma-embedding",
    };
    return names.count(architecture) != 0;
}

}  // namespace

std::optional<std::string> metadata_value(const llama_model * model, const std::string & key) {
    const int32_t length = llama_model_meta_val_str(model, key.c_str(), nullptr, 0);
    if (length < 0) {
        return std::nullopt;
    }
    std::string value(static_cast<size_t>(length) + 1, '\0');
    llama_model_meta_val_str(model, key.c_str(), value.data(), value.size());
    value.pop_back();
    return value;
}

std::string architecture_of(const llama_model * model) {
    return metadata_value(model, "general.architecture").value_or("");
}

Model::Model(const ModelOptions & options) : path_(options.path), vocab_only_(options.vocab_only) {
    check_file(options.path);
    if (!options.vocab_only) {
        require_cpu_backend();
    }

    llama_model_params params = llama_model_default_params();
    n_gpu_layers_ = checked_int32("n_gpu_layers", options.n_gpu_layers, -1);
    params.n_gpu_layers = n_gpu_layers_;
    params.main_gpu = checked_int32("main_gpu", options.main_gpu, 0);
    params.split_mode = split_mode_of(options.split_mode);
    params.load_mode = load_mode_of(options.use_mmap, options.use_mlock);
    params.use_extra_bufts = options.use_extra_bufts;
    params.check_tensors = options.check_tensors;
    params.vocab_only = options.vocab_only;

    const std::vector<float> split = padded_split(options.tensor_split);
    params.tensor_split = options.tensor_split.empty() ? nullptr : split.data();
    std::vector<ggml_backend_dev_t> chosen;
    if (options.devices) {
        chosen = gpu_devices(*options.devices);
        params.devices = chosen.data();
    }

    Progress progress{options.progress, {}, 0.0F, false, nullptr};
    progress.interrupt.start();
    params.progress_callback = Progress::on_progress;
    params.progress_callback_user_data = &progress;

    const LogCapture log;
    llama_model * loaded = nullptr;
    try {
        loaded = llama_model_load_from_file(options.path.c_str(), params);
    } catch (const std::exception & error) {
        load_error(path_, log.reason(error.what()));
    }
    native_.reset(loaded, llama_model_free);
    if (progress.raised) {
        std::rethrow_exception(progress.raised);
    }
    progress.interrupt.rethrow();
    if (loaded == nullptr) {
        if (progress.cancelled) {
            throw Error("LoadCancelledError", {{"path", path_}, {"progress", static_cast<double>(progress.last)}});
        }
        load_error(path_, log.reason("llama.cpp gave no reason"));
    }
}

const llama_model * Model::get() const {
    return share().get();
}

const llama_vocab * Model::vocab() const {
    return llama_model_get_vocab(get());
}

std::shared_ptr<llama_model> Model::share() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!native_) {
        closed_error("model");
    }
    return native_;
}

void Model::close() {
    std::shared_ptr<llama_model> last;
    const std::lock_guard<std::mutex> lock(mutex_);
    last.swap(native_);
}

bool Model::closed() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return native_ == nullptr;
}

std::string Model::description() const {
    char text[256] = {};
    llama_model_desc(get(), text, sizeof(text));
    return text;
}

std::string Model::architecture() const {
    return architecture_of(get());
}

std::string Model::memory_kind() const {
    const llama_model * model = get();
    if (!llama_model_has_decoder(model) || llama_model_is_diffusion(model) || is_encoder_only(architecture())) {
        return "none";
    }
    if (llama_model_is_hybrid(model)) {
        return "hybrid";
    }
    if (llama_model_is_recurrent(model)) {
        return "recurrent";
    }
    return n_swa() > 0 ? "sliding_window" : "attention";
}

std::string Model::quantization() const {
    return llama_ftype_name(llama_model_ftype(get()));
}

std::map<std::string, std::string> Model::metadata() const {
    const llama_model * model = get();
    std::map<std::string, std::string> values;
    const int32_t count = llama_model_meta_count(model);
    for (int32_t i = 0; i < count; ++i) {
        const int32_t length = llama_model_meta_key_by_index(model, i, nullptr, 0);
        if (length < 0) {
            continue;
        }
        std::string key(static_cast<size_t>(length) + 1, '\0');
        llama_model_meta_key_by_index(model, i, key.data(), key.size());
        key.pop_back();
        values[key] = metadata_value(model, key).value_or("");
    }
    return values;
}

std::optional<std::string> Model::chat_template(const std::optional<std::string> & name) const {
    const char * text = llama_model_chat_template(get(), name ? name->c_str() : nullptr);
    return text != nullptr ? std::optional<std::string>(text) : std::nullopt;
}

// A vocabulary-only model has no sizes, and llama.cpp aborts when asked for the heads of a model without layers.
int32_t Model::size_or_zero(int32_t (*size)(const llama_model *)) const {
    const llama_model * model = get();
    return vocab_only_ || llama_model_n_layer(model) < 1 ? 0 : size(model);
}

}  // namespace pyspec
