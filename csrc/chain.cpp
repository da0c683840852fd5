#include "chain.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "errors.hpp"

namespace pyspec {

namespace {

// exp() of less than this is not worth a thought, and llama.cpp's typical sampler takes the logarithm of it.
constexpr float negligible_logit = -70.0f;
// Below this temperature a logit could leave the range of float.
constexpr double small_temperature = 0.01;
// Number of candidates from which mirostat 1 estimates the slope, as in llama.cpp (common/sampling.cpp).
constexpr size_t n_mirostat = 100;

[[noreturn]] void sampler_error(const std::string & reason) {
    throw Error("SamplerError", {{"reason", reason}});
}

std::vector<llama_logit_bias> merged_bias(const SamplerOptions & options, const llama_vocab * vocab, int n_vocab) {
    std::vector<llama_logit_bias> bias;
    for (const auto & [token, value] : options.logit_bias) {
        bias.push_back({static_cast<llama_token>(token), static_cast<float>(value)});
    }
    int32_t n_suppress = 0;
    const llama_token * suppress = llama_vocab_get_suppress_tokens(vocab, &n_suppress);
    for (int32_t i = 0; i < n_suppress; ++i) {
        if (suppress[i] >= 0 && suppress[i] < n_vocab) {
            bias.push_back({suppress[i], -INFINITY});
        }
    }
    return bias;
}

SamplerPtr make_dry(const SamplerOptions & options, const llama_vocab * vocab) {
    if (!options.has_dry()) {
        return nullptr;
    }
    if (!options.dry_sequence_breakers.empty() && llama_vocab_type(vocab) == LLAMA_VOCAB_TYPE_NONE) {
        throw Error("VocabularyMissingError", {{"what", std::string("dry_sequence_breakers (pass an empty one)")}});
    }
    std::vector<const char *> breakers;
    for (const std::string & breaker : options.dry_sequence_breakers) {
        breakers.push_back(breaker.c_str());
    }
    return SamplerPtr(
        llama_sampler_init_dry(vocab, static_cast<float>(options.dry_multiplier), static_cast<float>(options.dry_base),
                               static_cast<int32_t>(options.dry_allowed_length),
                               static_cast<int32_t>(options.dry_penalty_last_n), breakers.data(), breakers.size()));
}

bool precedes(const llama_token_data & a, const llama_token_data & b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

}  // namespace

void TokenWindow::push(llama_token token) {
    tokens_.push_back(token);
    counts_[token] += 1;
    if (tokens_.size() > n_max_) {
        const auto oldest = counts_.find(tokens_.front());
        if (--oldest->second == 0) {
            counts_.erase(oldest);
        }
        tokens_.pop_front();
    }
}

void TokenWindow::clear() {
    tokens_.clear();
    counts_.clear();
}

Chain::Chain(const SamplerOptions & options, const llama_vocab * vocab)
    : options_(options), n_vocab_(llama_vocab_n_tokens(vocab)), bias_(merged_bias(options, vocab, n_vocab_)),
      window_(options.penalty_last_n), dry_(make_dry(options, vocab)),
      sort_(llama_sampler_init_top_k(std::numeric_limits<int32_t>::max())) {
    bias_forbids_ = std::any_of(bias_.begin(), bias_.end(), [](const auto & entry) { return std::isinf(entry.bias); });
    if (options.greedy()) {
        return;
    }
    const auto min_keep = static_cast<size_t>(options.min_keep);
    if (options.mirostat == 0) {
        if (options.top_k > 0) {
            add(llama_sampler_init_top_k(static_cast<int32_t>(options.top_k)));
        }
        if (options.typical_p < 1.0) {
            typical_ = truncating_.size();
            add(llama_sampler_init_typical(static_cast<float>(options.typical_p), min_keep));
        }
        if (options.top_p < 1.0) {
            add(llama_sampler_init_top_p(static_cast<float>(options.top_p), min_keep));
        }
        if (options.min_p > 0.0) {
            add(llama_sampler_init_min_p(static_cast<float>(options.min_p), min_keep));
        }
    }
    const double range = options.mirostat == 0 ? options.dynatemp_range : 0.0;
    if (options.temperature != 1.0 || range > 0.0) {
        temperature_.reset(llama_sampler_init_temp_ext(static_cast<float>(options.temperature),
                                                       static_cast<float>(range),
                                                       static_cast<float>(options.dynatemp_exponent)));
    }
}

Chain::Chain(const Chain & other)
    : options_(other.options_), n_vocab_(other.n_vocab_), bias_(other.bias_), bias_forbids_(other.bias_forbids_),
      window_(other.window_), dry_(llama_sampler_clone(other.dry_.get())), typical_(other.typical_),
      temperature_(llama_sampler_clone(other.temperature_.get())), sort_(llama_sampler_clone(other.sort_.get())) {
    for (const SamplerPtr & sampler : other.truncating_) {
        add(llama_sampler_clone(sampler.get()));
    }
}

std::vector<std::string> Chain::names() const {
    std::vector<std::string> names;
    if (!bias_.empty()) {
        names.emplace_back("logit-bias");
    }
    if (options_.has_penalties()) {
        names.emplace_back("penalties");
    }
    if (dry_) {
        names.emplace_back("dry");
    }
    for (const SamplerPtr & sampler : truncating_) {
        names.emplace_back(llama_sampler_name(sampler.get()));
    }
    if (options_.greedy()) {
        names.emplace_back("greedy");
        return names;
    }
    if (options_.mirostat == 0 && options_.has_xtc()) {
        names.emplace_back("xtc");
    }
    if (temperature_) {
        names.emplace_back(llama_sampler_name(temperature_.get()));
    }
    names.emplace_back(options_.mirostat == 0 ? "dist" : options_.mirostat == 1 ? "mirostat" : "mirostat-v2");
    return names;
}

void Chain::check_defined(bool defined) {
    if (!defined) {
        sampler_error("the model's logits contain NaN or infinity; its weights or its state are damaged");
    }
}

void Chain::load(const float * logits) {
    candidates_.resize(n_vocab_);
    bool undefined = false;
    bool forbidden = false;
    for (int i = 0; i < n_vocab_; ++i) {
        const float logit = logits[i];
        undefined |= !(logit < INFINITY);
        forbidden |= logit == -INFINITY;
        candidates_[i] = {i, logit, 0.0f};
    }
    check_defined(!undefined);
    array_ = {candidates_.data(), candidates_.size(), -1, false};
    for (const llama_logit_bias & entry : bias_) {
        candidates_[entry.token].logit += entry.bias;
    }
    if (options_.has_penalties()) {
        for (const auto & [token, count] : window_.counts()) {
            float & logit = candidates_[token].logit;
            const auto repeat = static_cast<float>(options_.repeat_penalty);
            logit = logit <= 0 ? logit * repeat : logit / repeat;
            logit -= static_cast<float>(count) * static_cast<float>(options_.frequency_penalty)
                     + static_cast<float>(options_.presence_penalty);
        }
    }
    if (dry_) {
        apply(dry_);
    }
    if (forbidden || bias_forbids_ || dry_) {
        drop_forbidden();
    }
}

void Chain::apply(const SamplerPtr & sampler) {
    llama_sampler_apply(sampler.get(), &array_);
}

void Chain::drop_below(float logit) {
    llama_token_data * end = std::remove_if(array_.data, array_.data + array_.size,
                                            [logit](const llama_token_data & token) { return token.logit < logit; });
    array_.size = end - array_.data;
}

void Chain::drop_forbidden() {
    drop_below(std::numeric_limits<float>::lowest());
    check_not_empty();
}

void Chain::check_not_empty() const {
    if (array_.size == 0) {
        sampler_error("no candidate is left: the grammar, the mask or the logit bias forbids every token");
    }
}

size_t Chain::n_decisive() const {
    if (options_.greedy()) {
        return 1;
    }
    return options_.mirostat == 0 && options_.top_k > 0 ? static_cast<size_t>(options_.top_k) : array_.size;
}

void Chain::sort_front(size_t n) {
    std::partial_sort(array_.data, array_.data + n, array_.data + array_.size, precedes);
}

void Chain::keep_front(size_t n) {
    array_.size = n;
    array_.sorted = true;
}

llama_token Chain::best() const {
    const llama_token_data * best = array_.data;
    for (const llama_token_data * token = best; token != array_.data + array_.size; ++token) {
        if (token->logit > best->logit) {
            best = token;
        }
    }
    return best->id;
}

// llama.cpp sorts in top-k, by buckets, which is faster than std::sort on a whole vocabulary.
void Chain::sort() {
    if (!array_.sorted) {
        apply(sort_);
    }
}

// The largest logit becomes 0, so that a division by a tiny temperature cannot leave the range of float.
void Chain::shift() {
    float largest = array_.data[0].logit;
    for (size_t i = 1; i < array_.size; ++i) {
        largest = std::max(largest, array_.data[i].logit);
    }
    for (size_t i = 0; i < array_.size; ++i) {
        array_.data[i].logit -= largest;
    }
}

void Chain::weigh() {
    float largest = array_.data[0].logit;
    for (size_t i = 1; i < array_.size && !array_.sorted; ++i) {
        largest = std::max(largest, array_.data[i].logit);
    }
    total_ = 0.0;
    for (size_t i = 0; i < array_.size; ++i) {
        array_.data[i].p = std::exp(array_.data[i].logit - largest);
        total_ += array_.data[i].p;
    }
}

void Chain::truncate(double mu, bool exclude) {
    for (size_t i = 0; i < truncating_.size(); ++i) {
        if (i == typical_) {
            shift();
            drop_below(negligible_logit);
        }
        apply(truncating_[i]);
    }
    if (exclude) {
        exclude_top_choices();
    }
    if (temperature_) {
        if (options_.dynatemp_range > 0.0 || options_.temperature < small_temperature) {
            shift();
        }
        apply(temperature_);
    }
    if (options_.mirostat != 0) {
        cut_mirostat(mu);
    }
    weigh();
}

// XTC (llama.cpp src/llama-sampler.cpp): of the choices at or above the threshold only the least likely stays.
void Chain::exclude_top_choices() {
    if (array_.size < 2) {
        return;
    }
    sort();
    weigh();
    size_t n_above = 0;
    while (n_above < array_.size && array_.data[n_above].p / total_ >= options_.xtc_threshold) {
        ++n_above;
    }
    if (n_above > 1 && array_.size - (n_above - 1) >= static_cast<size_t>(options_.min_keep)) {
        array_.data += n_above - 1;
        array_.size -= n_above - 1;
    }
}

// Mirostat (https://arxiv.org/abs/2007.14966): keep the candidates whose surprise stays about below mu bits. Version 1
// finds their number from the slope of the ranked probabilities, version 2 cuts directly.
void Chain::cut_mirostat(double mu) {
    sort();
    weigh();
    const size_t n = array_.size;
    size_t n_keep = 1;
    if (options_.mirostat == 2) {
        while (n_keep < n && array_.data[n_keep].p > 0.0f && -std::log2(array_.data[n_keep].p / total_) <= mu) {
            ++n_keep;
        }
    } else if (n > 1) {
        double sum_tb = 0.0;
        double sum_tt = 0.0;
        for (size_t i = 0; i + 1 < std::min(n, n_mirostat); ++i) {
            if (array_.data[i + 1].p <= 0.0f) {
                break;
            }
            const double t = std::log(double(i + 2) / double(i + 1));
            const double b = double(array_.data[i].logit) - double(array_.data[i + 1].logit);
            sum_tb += t * b;
            sum_tt += t * t;
        }
        const double slope = sum_tt > 0.0 ? sum_tb / sum_tt : INFINITY;
        const double epsilon = slope - 1.0;
        const double spread = std::abs(epsilon) < 1e-9 ? 1.0 / std::log(double(n_vocab_))
                                                       : epsilon / (1.0 - std::pow(double(n_vocab_), -epsilon));
        const double k = slope > 0.0 ? std::pow(spread * std::exp2(mu), 1.0 / slope) : double(n);
        n_keep = std::isfinite(slope) ? static_cast<size_t>(std::max(1.0, std::min(double(n), k))) : 1;
    }
    array_.size = n_keep;
}

Chain::Pick Chain::pick(double u) const {
    const double target = total_ * u;
    double low = 0.0;
    size_t last = 0;
    double last_low = 0.0;
    for (size_t i = 0; i < array_.size; ++i) {
        const double weight = array_.data[i].p;
        if (weight > 0.0) {
            last = i;
            last_low = low;
            if (low + weight >= target) {
                break;
            }
            low += weight;
        }
    }
    return {last, last_low, last_low + array_.data[last].p};
}

void Chain::accept(llama_token token) {
    if (options_.has_penalties()) {
        window_.push(token);
    }
    llama_sampler_accept(dry_.get(), token);
}

void Chain::reset() {
    window_.clear();
    llama_sampler_reset(dry_.get());
}

}  // namespace pyspec
