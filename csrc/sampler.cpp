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
      grammar_(other.grammar_), is_greedy_(other.is_greedy_), rng_(other.rng_), xtc_rng_(other.xtc_rng_),
      mu_(other.mu_), chosen_(other.chosen_), chosen_mu_(other.chosen_mu_) {}

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

llama_token Sampler::sample(Context & context, int64_t row) {
    const Use use(*this);
    const Context::Use context_use(context);
    const float * logits = row_of(context, row);
    if (is_greedy_) {
        llama_token token = 0;
        context.argmax_rows(row, 1, &token);
        Chain::check_defined(logits[token] < INFINITY);
        return token;
    }
    return options_.greedy() ? choose_greedy(logits) : choose(logits);
}

llama_token Sampler::choose_greedy(const float * logits) {
    chain_.load(logits);
    const llama_token token = chain_.best();
    if (!grammar_ || grammar_->allows(token)) {
        return token;
    }
    constrain();
    return chain_.best();
}

// The grammar is asked about the chosen token alone; only when it forbids that one, all others are asked and the chain
// runs again over the allowed ones (llama.cpp's common/sampling.cpp does the same). The second choice reuses what is
// left of the draw: given the first choice, the place of u inside that choice's interval is uniform again.
llama_token Sampler::choose(const float * logits) {
    chain_.load(logits);
    const bool exclude =
        options_.mirostat == 0 && options_.has_xtc()
        && static_cast<float>(xtc_rng_()) / 4294967296.0f <= static_cast<float>(options_.xtc_probability);
    const double u = draw();
    chain_.truncate(mu_, exclude);
    Chain::Pick pick = chain_.pick(u);
    if (grammar_ && !grammar_->allows(chain_[pick.index].id)) {
        const double rest = (u * chain_.total() - pick.low) / (pick.high - pick.low);
        chain_.load(logits);
        constrain();
        chain_.truncate(mu_, exclude);
        pick = chain_.pick(std::max(0.0, std::min(rest, 1.0)));
    }
    chosen_ = chain_[pick.index].id;
    const double surprise = -std::log2(chain_[pick.index].p / chain_.total());
    chosen_mu_ = mu_ - options_.mirostat_eta * (surprise - options_.mirostat_tau);
    return chosen_;
}

// Asking about every token is by far the dearest step, and what the best candidates allow mostly decides.
void Sampler::constrain() {
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

// 53 random bits as std::generate_canonical makes them, so that llama.cpp's "dist" chooses the same for a seed.
double Sampler::draw() {
    const double low = rng_();
    const double high = rng_();
    return std::min((low + high * 4294967296.0) / 18446744073709551616.0, std::nextafter(1.0, 0.0));
}

void Sampler::add_law(const float * logits, bool exclude, double share, std::vector<double> & law) {
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
        (grammar_ && token.logit == -INFINITY ? forbidden : law[token.id]) += probability;
    }
    if (forbidden <= 0.0) {
        return;
    }
    chain_.load(logits);
    constrain();
    chain_.truncate(mu_, exclude);
    for (size_t i = 0; i < chain_.size(); ++i) {
        law[chain_[i].id] += chain_[i].p / chain_.total() * forbidden;
    }
}

Sampler::Distribution Sampler::distribution(Context & context, int64_t row) {
    const Use use(*this);
    const Context::Use context_use(context);
    const float * logits = row_of(context, row);
    std::vector<double> law(chain_.n_vocab(), 0.0);
    if (options_.greedy()) {
        law[choose_greedy(logits)] = 1.0;
    } else {
        const double xtc = options_.mirostat == 0 && options_.has_xtc() ? options_.xtc_probability : 0.0;
        add_law(logits, false, 1.0 - xtc, law);
        add_law(logits, true, xtc, law);
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
}

}  // namespace pyspec
