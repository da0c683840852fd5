#include "gbnf.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "errors.hpp"
#include "gbnf_rules.hpp"

namespace pyspec {

namespace {

// Limits of llama.cpp's parser (MAX_REPETITION_THRESHOLD), and ours for what it leaves open.
constexpr uint64_t max_repeats = 2000;
constexpr uint64_t unbounded = UINT64_MAX;
constexpr int max_nesting = 200;
constexpr uint64_t max_elements = 4'000'000;

class Parser {
public:
    Parser(const std::string & text, const llama_vocab * vocab) : text_(text), vocab_(vocab) {}

    GbnfRules parse() {
        skip_space(true);
        while (!at_end()) {
            parse_rule();
        }
        return std::move(rules_);
    }

private:
    bool at_end() const { return pos_ >= text_.size(); }
    char peek(size_t ahead = 0) const { return pos_ + ahead < text_.size() ? text_[pos_ + ahead] : '\0'; }

    [[noreturn]] void fail(const std::string & what) const { fail_at(pos_, what); }
    [[noreturn]] void fail_at(size_t pos, const std::string & what) const {
        const size_t line = 1 + std::count(text_.begin(), text_.begin() + pos, '\n');
        const size_t start = pos == 0 ? std::string::npos : text_.rfind('\n', pos - 1);
        const size_t column = start == std::string::npos ? pos + 1 : pos - start;
        grammar_error("line " + std::to_string(line) + ", column " + std::to_string(column) + ": " + what);
    }

    static bool is_digit(char c) { return c >= '0' && c <= '9'; }
    static bool is_word(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || is_digit(c); }

    void skip_space(bool newline_ok) {
        for (;; ++pos_) {
            const char c = peek();
            if (c == '#') {
                while (!at_end() && peek() != '\r' && peek() != '\n') {
                    ++pos_;
                }
                --pos_;
            } else if (c != ' ' && c != '\t' && !(newline_ok && (c == '\r' || c == '\n'))) {
                return;
            }
        }
    }

    std::string parse_name() {
        const size_t start = pos_;
        while (is_word(peek())) {
            ++pos_;
        }
        if (pos_ == start) {
            fail("expected the name of a rule (letters, digits, '-')");
        }
        return text_.substr(start, pos_ - start);
    }

    uint64_t parse_number() {
        const size_t start = pos_;
        while (is_digit(peek())) {
            ++pos_;
        }
        if (pos_ == start || pos_ - start > 9) {
            fail_at(start, "expected a whole number of at most 9 digits");
        }
        return std::stoull(text_.substr(start, pos_ - start));
    }

    // One character or escape of a literal or a class; its value does not matter here.
    void parse_char() {
        if (at_end()) {
            fail("unexpected end of the grammar inside a literal or a class");
        }
        if (peek() != '\\') {
            ++pos_;
            while ((static_cast<unsigned char>(peek()) & 0xC0) == 0x80) {
                ++pos_;
            }
            return;
        }
        const char kind = peek(1);
        const size_t n_hex = kind == 'x' ? 2 : kind == 'u' ? 4 : kind == 'U' ? 8 : 0;
        if (n_hex == 0 && (kind == '\0' || std::string("trn\\\"[]-").find(kind) == std::string::npos)) {
            fail("unknown escape; known: \\t \\r \\n \\\\ \\\" \\[ \\] \\- \\xHH \\uHHHH \\UHHHHHHHH");
        }
        pos_ += 2;
        for (size_t i = 0; i < n_hex; ++i, ++pos_) {
            if (std::string("0123456789abcdefABCDEF").find(peek()) == std::string::npos || at_end()) {
                fail("expected " + std::to_string(n_hex) + " hexadecimal digits");
            }
        }
    }

    GbnfSymbol parse_literal() {
        const size_t start = pos_++;
        uint32_t n = 0;
        for (; peek() != '"'; ++n) {
            if (at_end()) {
                fail_at(start, "this literal is not closed");
            }
            parse_char();
        }
        ++pos_;
        return {-1, n};
    }

    GbnfSymbol parse_class() {
        const size_t start = pos_++;
        if (peek() == '^') {
            ++pos_;
        }
        uint32_t n = 0;
        for (; peek() != ']'; ++n) {
            if (at_end()) {
                fail_at(start, "this class is not closed");
            }
            parse_char();
            if (peek() == '-' && peek(1) != ']') {
                ++pos_;
                parse_char();
                ++n;
            }
        }
        ++pos_;
        return {-1, n};
    }

    GbnfSymbol parse_token() {
        if (peek() == '!') {
            ++pos_;
        }
        const size_t start = pos_;
        if (peek() != '<') {
            fail("expected '<' of a token");
        }
        if (peek(1) == '[') {
            pos_ += 2;
            const uint64_t id = parse_number();
            if (peek() != ']' || peek(1) != '>') {
                fail("expected ']>' after the token id");
            }
            pos_ += 2;
            if (id >= uint64_t(llama_vocab_n_tokens(vocab_))) {
                fail_at(start, "token " + std::to_string(id) + " is outside the vocabulary");
            }
            return {-1, 1};
        }
        const size_t end = text_.find('>', pos_);
        if (end == std::string::npos) {
            fail("this token is not closed with '>'");
        }
        pos_ = end + 1;
        llama_token found[2];
        const auto n_bytes = static_cast<int32_t>(pos_ - start);
        if (llama_tokenize(vocab_, text_.data() + start, n_bytes, found, 2, false, true) != 1) {
            fail_at(start, "'" + text_.substr(start, n_bytes) + "' is not one token of this model");
        }
        return {-1, 1};
    }

    void count(uint64_t n_elements) {
        n_elements_ += n_elements;
        if (n_elements_ > max_elements) {
            fail("the repetitions expand to more than 4000000 elements; shorten what is repeated, or repeat it less");
        }
    }

    // S{m,n} becomes S m times and a chain of n-m optional rules, as in llama.cpp; the chain is one rule with a weight.
    void repeat(GbnfSequence & sequence, size_t item, uint64_t & n_rules, uint64_t low, uint64_t high) {
        if (item == sequence.size()) {
            fail("expected something to repeat before this");
        }
        if (low > max_repeats) {
            fail("at most 2000 repetitions");
        }
        if (high < low) {
            fail("a repetition of at least " + std::to_string(low) + " and at most " + std::to_string(high));
        }
        if (high > max_repeats) {
            high = unbounded;
        }
        const uint64_t total = high != unbounded && high > 0 ? high : low > 0 ? low : 1;
        n_rules *= total;
        if (n_rules > max_repeats) {
            fail("nested repetitions multiply to more than 2000; repeat less");
        }
        const GbnfSequence body(sequence.begin() + item, sequence.end());
        uint64_t n_body = 0;
        for (const GbnfSymbol & symbol : body) {
            n_body += symbol.n_elements;
        }
        const uint64_t n_optional = high == unbounded ? 1 : high - low;
        count((low > 0 ? low - 1 : 0) * n_body + n_optional * (n_body + 2));
        if (low == 0) {
            sequence.resize(item);
        }
        for (uint64_t i = 1; i < low; ++i) {
            sequence.insert(sequence.end(), body.begin(), body.end());
        }
        if (n_optional == 0) {
            return;
        }
        const int id = rules_.add_unnamed(static_cast<uint32_t>(n_optional));
        n_unnamed_ += n_optional;
        GbnfSequence again = body;
        if (high == unbounded || n_optional > 1) {
            again.push_back({id, 1, high != unbounded});
        }
        rules_.define(id, {std::move(again), {}});
        sequence.push_back({id, 1});
    }

    GbnfSequence parse_sequence(int depth) {
        GbnfSequence sequence;
        size_t item = 0;
        uint64_t n_rules = 1;
        const bool nested = depth > 0;
        for (;; skip_space(nested)) {
            const char c = peek();
            std::optional<GbnfSymbol> symbol;
            uint64_t n_rules_of = 1;
            if (c == '"') {
                symbol = parse_literal();
            } else if (c == '[') {
                symbol = parse_class();
            } else if (c == '<' || c == '!') {
                symbol = parse_token();
            } else if (c == '.') {
                ++pos_;
                symbol = GbnfSymbol{-1, 1};
            } else if (is_word(c)) {
                symbol = GbnfSymbol{rules_.named(parse_name()), 1};
            } else if (c == '(') {
                const size_t before = n_symbols();
                const int id = rules_.add_unnamed(1);
                ++n_unnamed_;
                parse_group(id, depth);
                n_rules_of = std::max<size_t>(1, n_symbols() - before);
                symbol = GbnfSymbol{id, 1};
            } else if (c == '*' || c == '+' || c == '?') {
                ++pos_;
                repeat(sequence, item, n_rules, c == '+' ? 1 : 0, c == '?' ? 1 : unbounded);
            } else if (c == '{') {
                const auto [low, high] = parse_bounds(nested);
                repeat(sequence, item, n_rules, low, high);
            } else {
                return sequence;
            }
            if (symbol) {
                item = sequence.size();
                n_rules = n_rules_of;
                if (symbol->n_elements > 0) {
                    count(symbol->n_elements);
                    sequence.push_back(*symbol);
                }
            }
        }
    }

    std::pair<uint64_t, uint64_t> parse_bounds(bool nested) {
        ++pos_;
        skip_space(nested);
        const uint64_t low = parse_number();
        uint64_t high = low;
        skip_space(nested);
        if (peek() == ',') {
            ++pos_;
            skip_space(nested);
            high = is_digit(peek()) ? parse_number() : unbounded;
            skip_space(nested);
        }
        if (peek() != '}') {
            fail("expected '}' of a repetition such as {2}, {2,} or {2,5}");
        }
        ++pos_;
        return {low, high};
    }

    void parse_group(int id, int depth) {
        const size_t start = pos_++;
        if (depth + 1 > max_nesting) {
            fail_at(start, "parentheses nested deeper than 200");
        }
        skip_space(true);
        rules_.define(id, parse_alternatives(depth + 1));
        if (peek() != ')') {
            fail("expected ')' of the group, found " + found());
        }
        ++pos_;
    }

    std::vector<GbnfSequence> parse_alternatives(int depth) {
        std::vector<GbnfSequence> alternatives;
        alternatives.push_back(parse_sequence(depth));
        while (peek() == '|') {
            ++pos_;
            skip_space(true);
            alternatives.push_back(parse_sequence(depth));
        }
        return alternatives;
    }

    std::string found() const {
        return at_end()                           ? "the end"
               : peek() == '\n' || peek() == '\r' ? "a line break"
                                                  : std::string("'") + peek() + "'";
    }

    void parse_rule() {
        const int id = rules_.named(parse_name());
        skip_space(false);
        if (peek() != ':' || peek(1) != ':' || peek(2) != '=') {
            fail("expected '::=' after the name of a rule, found " + found());
        }
        pos_ += 3;
        skip_space(true);
        rules_.define(id, parse_alternatives(0));
        if (!at_end() && peek() != '\r' && peek() != '\n') {
            fail("expected the end of the rule's line, found " + found());
        }
        skip_space(true);
    }

    size_t n_symbols() const { return rules_.n_named() + n_unnamed_; }

    const std::string & text_;
    const llama_vocab * vocab_;
    size_t pos_ = 0;
    uint64_t n_elements_ = 0;
    uint64_t n_unnamed_ = 0;
    GbnfRules rules_;
};

}  // namespace

void check_gbnf(const std::string & text, const std::string & root, const llama_vocab * vocab) {
    if (text.find('\0') != std::string::npos) {
        grammar_error("the text contains a NUL character");
    }
    GbnfRules rules = Parser(text, vocab).parse();
    rules.check(root);
}

}  // namespace pyspec
