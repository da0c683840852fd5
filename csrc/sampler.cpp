#include "sampler.hpp"

#include <algorithm>
#include <cmath>

#include "errors.hpp"

namespace pyspec {

namespace {

constexpr size_t min_front = 256;

uint32_t seed_of(const SamplerOptions & options) {
    return options.seed ? static_cast<uint32_t>(*options.seed) : std::random_device()() % 4294967295u;
}

bool is_set(TokenMask mask, llama_token token) {
    return (mask[token / 32] >> (token % 32) & 1u) != 0;
}

// The allowed token with the largest logit, the smallest id among equals; -1 where all of them are -infinity.
llama_token best_allowed(const float * logits, TokenMask mask, int n_vocab) {
    llama_token best = -1;
    float largest = -INFINITY;
    for (llama_token token = 0; token < n_vocab; ++token) {
        if (logits[token] > largest && is_set(mask, token)) {
            best = token;
            largest = logits[token];
        }
    }
    return best;
}

SamplerOptions checked(const SamplerOptions & options, const llama_vocab * vocab) {
    options.check(llama_vocab_n_tokens(vocab));
    return options;
}

}  // namespace

Sampler::Use::Use(Sampler & sampler) : sampler_(sampler) {
    if (sampler.busy_.exchange(true, std::memory_order_acquire)) {
        busy_error("sampler");
    }
}

Sampler::Sampler(const Model & model, const SamplerOptions & options)
    : model_(model.share()), options_(checked(options, llama_model_get_vocab(model_.get()))), seed_(seed_of(options)),
      chain_(options_, llama_model_get_vocab(model_.get())), rng_(seed_), xtc_rng_(seed_),
      mu_(2.0 * options.mirostat_tau) {
    if (options_.grammar) {
        grammar_.emplace(*options_.grammar, options_.grammar_root, llama_model_get_vocab(model_.get()));
    }
    is_greedy_ = options_.greedy() && chain_.keeps_argmax() && !grammar_;
}

Sampler::Sampler(const Sampler & other)
    : model_(other.model_), options_(other.options_), seed_(other.seed_), chain_(other.chain_),
      grammar_(other.grammar_), is_greedy_(other.is_greedy_), rng_(other.rng_), xtc_rng_(other.xtc_rng_), u_(other.u_),
      exclude_(other.exclude_), mu_(other.mu_), chosen_(other.chosen_), chosen_mu_(other.chosen_mu_) {}

std::unique_ptr<Sampler> Sampler::clone() {
    const Use use(*this);
    return std::unique_ptr<Sampler>(new Sampler(*this));
}

std::vector<std::string> Sampler::names() const {
    std::vector<std::string> names = chain_.names();
    if (grammar_) {
        names.emplace_back("grammar");
    }
    return names;
}

const float * Sampler::row_of(Context & context, int64_t row) const {
    if (context.native_model() != model_.get()) {
        invalid_value("context", std::string("a context of another model"), "a context of the sampler's model");
    }
    return context.logits_row(row);
}

bool Sampler::allows(llama_token token, TokenMask mask) const {
    return (mask == nullptr || is_set(mask, token)) && (!grammar_ || grammar_->allows(token));
}

llama_token Sampler::sample(Context & context, int64_t row, TokenMask mask, bool again) {
    const Use use(*this);
    const Context::Use context_use(context);
    const float * logits = row_of(context, row);
    if (is_greedy_) {
        llama_token token = 0;
        context.argmax_rows(row, 1, &token);
        Chain::check_defined(logits[token] < INFINITY);
        if (mask != nullptr && !is_set(mask, token)) {
            token = best_allowed(logits, mask, chain_.n_vocab());
        }
        if (token >= 0) {
            return token;
        }
    }
    return options_.greedy() ? choose_greedy(logits, mask) : choose(logits, mask, again);
}

llama_token Sampler::choose_greedy(const float * logits, TokenMask mask) {
    chain_.load(logits);
    const llama_token token = chain_.best();
    if (allows(token, mask)) {
        return token;
    }
    constrain(mask);
    return chain_.best();
}

// The grammar is asked about the chosen token alone; only when it forbids that one, all others are asked and the chain
// runs again over the allowed ones (llama.cpp's common/sampling.cpp does the same). The second choice reuses what is
// left of the draw: given the first choice, the place of u inside that choice's interval is uniform again.
llama_token Sampler::choose(const float * logits, TokenMask mask, bool again) {
    chain_.load(logits);
    draw_numbers(again);
    chain_.truncate(mu_, exclude_);
    Chain::Pick pick = chain_.pick(*u_);
    if (!allows(chain_[pick.index].id, mask)) {
        const double rest = (*u_ * chain_.total() - pick.low) / (pick.high - pick.low);
        chain_.load(logits);
        constrain(mask);
        chain_.truncate(mu_, exclude_);
        pick = chain_.pick(std::max(0.0, std::min(rest, 1.0)));
    }
    chosen_ = chain_[pick.index].id;
    const double surprise = -std::log2(chain_[pick.index].p / chain_.total());
    chosen_mu_ = mu_ - options_.mirostat_eta * (surprise - options_.mirostat_tau);
    return chosen_;
}

void Sampler::constrain(TokenMask mask) {
    if (mask != nullptr) {
        chain_.keep_if([mask](llama_token token) { return is_set(mask, token); });
    }
    if (grammar_) {
        constrain_by_grammar();
    }
}

// Asking about every token is by far the dearest step, and what the best candidates allow mostly decides.
void Sampler::constrain_by_grammar() {
    const size_t n = chain_.size();
    const size_t n_front = std::min(n, std::max(min_front, 4 * chain_.n_decisive()));
    if (n_front < n) {
        chain_.sort_front(n_front);
    }
    llama_token_data * front = chain_.data();
    grammar_->mask(front, n_front);
    const auto n_allowed = static_cast<size_t>(
        std::count_if(front, front + n_front, [](const llama_token_data & token) { return token.logit != -INFINITY; }));
    if (n_front < n && n_allowed >= chain_.n_decisive()) {
        chain_.keep_front(n_front);
    } else if (n_front < n) {
        grammar_->mask(front + n_front, n - n_front);
    }
    chain_.drop_forbidden();
}

void Sampler::draw_numbers(bool again) {
    if (again && !u_) {
        throw Error("SamplerError", {{"reason", std::string("there is no choice to make again")}});
    }
    if (again) {
        return;
    }
    exclude_ = options_.mirostat == 0 && options_.has_xtc()
               && static_cast<float>(xtc_rng_()) / 4294967296.0f <= static_cast<float>(options_.xtc_probability);
    u_ = draw();
}

// 53 random bits as std::generate_canonical makes them, so that llama.cpp's "dist" chooses the same for a seed.
double Sampler::draw() {
    const double low = rng_();
    const double high = rng_();
    return std::min((low + high * 4294967296.0) / 18446744073709551616.0, std::nextafter(1.0, 0.0));
}

void Sampler::add_law(const float * logits, bool exclude, double share, TokenMask mask, std::vector<double> & law) {
    if (share <= 0.0) {
        return;
    }
    chain_.load(logits);
    chain_.truncate(mu_, exclude);
    std::vector<llama_token_data> first(&chain_[0], &chain_[0] + chain_.size());
    const double first_total = chain_.total();
    if (grammar_) {
        grammar_->mask(first.data(), first.size());
    }
    double forbidden = 0.0;
    for (const llama_token_data & token : first) {
        const double probability = token.p / first_total * share;
        const bool is_allowed = (mask == nullptr || is_set(mask, token.id)) && !(grammar_ && token.logit == -INFINITY);
        (is_allowed ? law[token.id] : forbidden) += probability;
    }
    if (forbidden <= 0.0) {
        return;
    }
    chain_.load(logits);
    constrain(mask);
    chain_.truncate(mu_, exclude);
    for (size_t i = 0; i < chain_.size(); ++i) {
        law[chain_[i].id] += chain_[i].p / chain_.total() * forbidden;
    }
}

Sampler::Distribution Sampler::distribution(Context & context, int64_t row, TokenMask mask) {
    const Use use(*this);
    const Context::Use context_use(context);
    const float * logits = row_of(context, row);
    std::vector<double> law(chain_.n_vocab(), 0.0);
    if (options_.greedy()) {
        law[choose_greedy(logits, mask)] = 1.0;
    } else {
        const double xtc = options_.mirostat == 0 && options_.has_xtc() ? options_.xtc_probability : 0.0;
        add_law(logits, false, 1.0 - xtc, mask, law);
        add_law(logits, true, xtc, mask, law);
    }
    Distribution distribution;
    for (int token = 0; token < chain_.n_vocab(); ++token) {
        if (law[token] > 0.0) {
            distribution.tokens.push_back(token);
        }
    }
    std::stable_sort(distribution.tokens.begin(), distribution.tokens.end(),
                     [&](llama_token a, llama_token b) { return law[a] > law[b]; });
    for (const llama_token token : distribution.tokens) {
        distribution.probabilities.push_back(static_cast<float>(law[token]));
    }
    return distribution;
}

void Sampler::accept(int64_t token, bool prompt) {
    const Use use(*this);
    if (token < 0 || token >= chain_.n_vocab()) {
        throw Error("TokenRangeError",
                    {{"token", token}, {"index", int64_t(0)}, {"n_vocab", int64_t(chain_.n_vocab())}});
    }
    const auto id = static_cast<llama_token>(token);
    if (grammar_ && !prompt) {
        grammar_->accept(id);
    }
    chain_.accept(id);
    if (id == chosen_ && !prompt) {
        mu_ = chosen_mu_;
    }
    chosen_ = -1;
    u_.reset();
}

void Sampler::reset() {
    const Use use(*this);
    chain_.reset();
    if (grammar_) {
        grammar_->reset();
    }
    rng_.seed(seed_);
    xtc_rng_.seed(seed_);
    mu_ = 2.0 * options_.mirostat_tau;
    chosen_ = -1;
    u_.reset();
}

}  // namespace pyspec
