#include "gbnf_rules.hpp"

#include <algorithm>

#include "errors.hpp"

namespace pyspec {

namespace {

constexpr int max_depth = 1000;
constexpr size_t max_rules = 10'000;
constexpr size_t max_circle = 100;
constexpr uint64_t max_calls = 10'000'000;
constexpr uint64_t max_ways = 100'000;
constexpr uint64_t many = uint64_t(1) << 40;

uint64_t add(uint64_t a, uint64_t b) {
    return std::min(a + b, many);
}

}  // namespace

void grammar_error(const std::string & reason) {
    throw Error("GrammarError", {{"reason", reason}});
}

int GbnfRules::named(const std::string & name) {
    const auto [it, is_new] = ids_.emplace(name, static_cast<int>(rules_.size()));
    if (is_new) {
        add_unnamed(1);
        rules_.back().name = name;
    }
    return it->second;
}

int GbnfRules::add_unnamed(uint32_t weight) {
    if (rules_.size() >= max_rules) {
        grammar_error("more than 10000 rules, groups and repetitions; split the grammar");
    }
    rules_.emplace_back().weight = weight;
    return static_cast<int>(rules_.size()) - 1;
}

void GbnfRules::define(int rule, std::vector<GbnfSequence> alternatives) {
    rules_[rule].alternatives = std::move(alternatives);
    rules_[rule].defined = true;
}

std::string GbnfRules::describe(int rule) const {
    return rules_[rule].name.empty() ? "a group or repetition" : "rule '" + rules_[rule].name + "'";
}

// Least fixed point: may_be_empty and starts only ever turn true.
void GbnfRules::solve_empty_and_starts() {
    for (bool changed = true; changed;) {
        changed = false;
        for (size_t i = rules_.size(); i-- > 0;) {
            Rule & rule = rules_[i];
            bool empty = rule.may_be_empty;
            bool starts = rule.starts;
            for (const GbnfSequence & sequence : rule.alternatives) {
                bool reaches_end = true;
                for (const GbnfSymbol & symbol : sequence) {
                    starts = starts || symbol.rule < 0 || rules_[symbol.rule].starts;
                    if (symbol.rule < 0 || !rules_[symbol.rule].may_be_empty) {
                        reaches_end = false;
                        break;
                    }
                }
                empty = empty || reaches_end;
            }
            changed = changed || empty != rule.may_be_empty || starts != rule.starts;
            rule.may_be_empty = empty;
            rule.starts = starts;
        }
    }
}

void GbnfRules::find_edges() {
    for (Rule & rule : rules_) {
        for (const GbnfSequence & sequence : rule.alternatives) {
            bool seen = true;
            bool reaches_end = true;
            for (size_t i = 0; i < sequence.size() && reaches_end; ++i) {
                const GbnfSymbol & symbol = sequence[i];
                if (symbol.rule < 0) {
                    reaches_end = false;
                    rule.n_leaves += 1;
                } else if (!symbol.is_next_of_chain) {
                    rule.edges.push_back({symbol.rule, seen, i + 1 < sequence.size()});
                    seen = seen && rules_[symbol.rule].has_empty_alternative;
                    reaches_end = rules_[symbol.rule].may_be_empty;
                }
            }
            rule.n_leaves += reaches_end ? 1 : 0;
        }
    }
}

void GbnfRules::left_recursion(int rule) const {
    grammar_error("left recursion: " + describe(rule)
                  + " can begin with itself; put what is read first before the recursion");
}

// Tarjan's search for strongly connected components over the left edges.
void GbnfRules::visit(int id, int depth) {
    if (depth > max_depth) {
        grammar_error("rules begin with each other more than 1000 deep at " + describe(id) + "; flatten them");
    }
    Rule & rule = rules_[id];
    rule.index = rule.low = n_visited_++;
    rule.open = true;
    open_.push_back(id);
    for (const Edge & edge : rule.edges) {
        Rule & next = rules_[edge.to];
        if (next.index < 0) {
            visit(edge.to, depth + 1);
            rule.low = std::min(rule.low, next.low);
        } else if (next.open) {
            rule.low = std::min(rule.low, next.index);
        }
    }
    if (rule.low == rule.index) {
        close_component(id);
    }
}

// What stays after removing, again and again, the rules without a seen edge to another that stays is a cycle.
bool GbnfRules::has_seen_cycle(std::vector<int> members) const {
    if (members.size() > max_circle) {
        grammar_error("more than 100 rules begin with each other in a circle; simplify them");
    }
    for (;;) {
        const std::vector<int> before = members;
        const auto leads_nowhere = [&](int member) {
            return std::none_of(rules_[member].edges.begin(), rules_[member].edges.end(), [&](const Edge & edge) {
                return edge.seen && std::find(before.begin(), before.end(), edge.to) != before.end();
            });
        };
        members.erase(std::remove_if(members.begin(), members.end(), leads_nowhere), members.end());
        if (members.empty() || members.size() == before.size()) {
            return !members.empty();
        }
    }
}

// Within a component every edge lies on a cycle. llama.cpp refuses a cycle of edges that it sees; it would grow its
// stacks for ever on one where something follows the reference, and copes with the others.
void GbnfRules::close_component(int id) {
    const auto first = std::find(open_.begin(), open_.end(), id);
    const std::vector<int> cyclic(first, open_.end());
    for (const int member : cyclic) {
        rules_[member].component = n_components_;
        rules_[member].open = false;
    }
    const auto stays = [&](const Edge & edge) { return rules_[edge.to].component == n_components_; };
    for (const int member : cyclic) {
        for (const Edge & edge : rules_[member].edges) {
            if (edge.grows && stays(edge)) {
                left_recursion(edge.to);
            }
        }
    }
    if (has_seen_cycle(cyclic)) {
        left_recursion(cyclic.front());
    }
    // Callees come first: later ones in the list were reached from earlier ones.
    for (auto it = open_.end(); it != first;) {
        count_ways(rules_[*--it]);
    }
    open_.erase(first, open_.end());
    ++n_components_;
}

void GbnfRules::count_ways(Rule & rule) {
    rule.n_calls = 1;
    rule.n_ways = rule.n_leaves;
    for (const Edge & edge : rule.edges) {
        rule.n_ways = add(rule.n_ways, rules_[edge.to].n_ways);
        rule.n_calls = add(rule.n_calls, edge.seen ? rules_[edge.to].n_calls : 0);
    }
    n_calls_ = add(n_calls_, std::min(many, rule.n_calls * rule.weight));
    // The chain of a bounded repetition is walked to its end where what it repeats may be missing.
    if (!rule.edges.empty() && rules_[rule.edges[0].to].has_empty_alternative) {
        rule.n_calls = std::min(many, rule.n_calls * rule.weight);
    }
    if (n_calls_ > max_calls || rule.n_ways > max_ways) {
        grammar_error("too many ways to begin " + describe(static_cast<int>(&rule - rules_.data()))
                      + " (rules that refer to the same rules several times, level on level); merge alternatives");
    }
}

void GbnfRules::check(const std::string & root) {
    if (rules_.empty()) {
        grammar_error("it contains no rule");
    }
    for (const Rule & rule : rules_) {
        if (!rule.defined) {
            grammar_error("rule '" + rule.name + "' is used but not defined");
        }
    }
    if (ids_.count(root) == 0) {
        grammar_error("it has no rule '" + root + "' to start from; define it or set grammar_root");
    }
    for (Rule & rule : rules_) {
        rule.has_empty_alternative = std::any_of(rule.alternatives.begin(), rule.alternatives.end(),
                                                 [](const GbnfSequence & sequence) { return sequence.empty(); });
    }
    solve_empty_and_starts();
    find_edges();
    for (size_t i = 0; i < rules_.size(); ++i) {
        if (rules_[i].index < 0) {
            visit(static_cast<int>(i), 0);
        }
    }
    for (size_t i = 0; i < rules_.size(); ++i) {
        if (!rules_[i].may_be_empty && !rules_[i].starts) {
            grammar_error(describe(static_cast<int>(i)) + " can never produce any text");
        }
    }
}

}  // namespace pyspec
