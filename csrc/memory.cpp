// Context: the memory of its sequences. Owns the guards in front of llama_memory_seq_*: what would abort, and what
// would succeed while leaving a state that no longer belongs to the remaining positions.
#include <algorithm>
#include <limits>

#include "context.hpp"
#include "errors.hpp"

namespace pyspec {

namespace {

constexpr int64_t pos_end = std::numeric_limits<llama_pos>::max();

llama_pos checked_pos(const char * name, int64_t pos) {
    if (pos < -1 || pos > pos_end) {
        invalid_value(name, pos, "-1 or a position from 0 to " + std::to_string(pos_end));
    }
    return static_cast<llama_pos>(pos);
}

}  // namespace

void Context::clear() {
    llama_synchronize(get());
    llama_memory_clear(memory_, false);
    std::fill(n_undoable_.begin(), n_undoable_.end(), 0);
    std::fill(rollback_pending_.begin(), rollback_pending_.end(), false);
}

void Context::seq_rm(int64_t seq_id, int64_t p0, int64_t p1) {
    const llama_seq_id seq = checked_seq(seq_id);
    const llama_pos from = checked_pos("p0", p0);
    const llama_pos to = checked_pos("p1", p1);
    const llama_pos first = std::max(from, 0);
    const llama_pos end = to < 0 ? std::numeric_limits<llama_pos>::max() : to;
    if (first >= end && to >= 0) {
        return;
    }
    const auto refuse = [&]() { throw Error("MemoryRefusedError", {{"seq_id", seq_id}, {"p0", p0}, {"p1", p1}}); };
    const llama_pos last = llama_memory_seq_pos_max(memory_, seq);
    const bool touches = last >= 0 && first <= last;
    const bool reaches_end = to < 0 || (last >= 0 && end > last);
    const bool whole = first == 0 && reaches_end;

    if (touches && !whole && (traits_.recurrent || traits_.deepseek4)) {
        // A state has no middle to forget, and only snapshots of the last decode bring back an earlier one: not
        // the one before its first token, which llama.cpp would accept.
        const int32_t n_removed = last - first + 1;
        if (!reaches_end || n_removed >= n_undoable_[seq]) {
            refuse();
        }
    }
    if (touches && !whole && reaches_end && !holds_window_before(seq, first)) {
        refuse();
    }
    if (!llama_memory_seq_rm(memory_, seq, whole ? -1 : from, reaches_end ? -1 : to)) {
        refuse();
    }
    if (touches) {
        rollback_pending_[seq] = !whole && (traits_.recurrent || traits_.deepseek4);
        n_undoable_[seq] = 0;
    }
}

// The next token at `pos` looks n_swa back; a window that was already pruned would be missed without a word.
bool Context::holds_window_before(llama_seq_id seq, llama_pos pos) const {
    return traits_.n_swa == 0 || traits_.recurrent
           || llama_memory_seq_pos_min(memory_, seq) <= std::max(0, pos - traits_.n_swa);
}

bool Context::can_seq_cp(bool partial) const {
    if (traits_.deepseek4) {
        return !partial && !kv_unified_;
    }
    return kv_unified_ || n_seq_max_ == 1 || !partial || !traits_.has_cells;
}

void Context::seq_cp(int64_t src, int64_t dst, int64_t p0, int64_t p1) {
    const llama_seq_id from = checked_seq(src);
    const llama_seq_id to = checked_seq(dst);
    llama_pos first = checked_pos("p0", p0);
    llama_pos end = checked_pos("p1", p1);
    if (from == to || (end >= 0 && std::max(first, 0) >= end)) {
        return;
    }
    const llama_pos last = llama_memory_seq_pos_max(memory_, from);
    if (first <= 0) {
        first = -1;
    }
    if (last >= 0 && end > last) {
        end = -1;
    }
    const bool partial = first > 0 || end >= 0;
    if (!can_seq_cp(partial)) {
        unsupported(partial ? "copying part of a sequence" : "copying a sequence",
                    traits_.deepseek4 ? "the model's memory of compressed blocks does not share it"
                                      : "with kv_unified=False every sequence has a memory of its own",
                    traits_.deepseek4 ? "save and restore its state" : "create the context with kv_unified=True");
    }
    if (end >= 0 && traits_.recurrent) {
        unsupported("copying a sequence without its end", "a recurrent state cannot be cut", "copy the whole sequence");
    }
    if (end >= 0 && !holds_window_before(from, end)) {
        unsupported("copying a sequence without its end",
                    "the sliding window before position " + std::to_string(end) + " is no longer in memory",
                    "copy the whole sequence, or create the context with swa_full=True");
    }
    // A recurrent state is replaced by a copy; attention cells of both sequences would stay side by side.
    const llama_pos start = std::max(first, 0);
    if (traits_.has_cells && last >= start && llama_memory_seq_pos_max(memory_, to) >= start) {
        invalid_value("dst", dst,
                      "a sequence that holds no position from " + std::to_string(start)
                          + " on; remove them first (seq_rm)");
    }
    // llama.cpp keeps the cursor per sequence, and a copy does not reset it: either side would read the wrong state.
    for (const llama_seq_id seq : {from, to}) {
        if (rollback_pending_[seq]) {
            unsupported("copying a sequence",
                        "the rollback by snapshot of sequence " + std::to_string(seq)
                            + " takes effect in its next decode",
                        "decode it before copying, or remove it whole");
        }
    }
    llama_memory_seq_cp(memory_, from, to, first, end);
    n_undoable_[to] = 0;
    rollback_pending_[to] = false;
}

// llama.cpp's seq_keep leaves the other sequences alone when each has a memory of its own.
void Context::seq_keep(int64_t seq_id) {
    const llama_seq_id kept = checked_seq(seq_id);
    for (uint32_t i = 0; i < n_seq_max_; ++i) {
        const auto seq = static_cast<llama_seq_id>(i);
        if (seq != kept) {
            seq_rm(seq, -1, -1);
        }
    }
}

bool Context::can_shift() const {
    return traits_.shiftable && llama_memory_can_shift(memory_);
}

void Context::seq_add(int64_t seq_id, int64_t p0, int64_t p1, int64_t delta) {
    const llama_seq_id seq = checked_seq(seq_id);
    const llama_pos from = checked_pos("p0", p0);
    const llama_pos to = checked_pos("p1", p1);
    if (delta < -pos_end || delta > pos_end) {
        invalid_value("delta", delta, "a difference of two positions");
    }
    if (!can_shift()) {
        unsupported("shifting positions", "this memory cannot turn its keys to other positions (see can_shift)",
                    "decode the sequence again; attention models can with type_k 'f16' or 'f32'");
    }
    const int64_t last = llama_memory_seq_pos_max(memory_, seq);
    const int64_t first = std::max<int64_t>(from, 0);
    const int64_t end = to < 0 ? last + 1 : std::min<int64_t>(to, last + 1);
    if (delta == 0 || first >= end) {
        return;
    }
    if (first + delta < 0 || end + delta > pos_end) {
        invalid_value("delta", delta, "such that no position leaves 0 to " + std::to_string(pos_end));
    }
    llama_memory_seq_add(memory_, seq, from, to, static_cast<llama_pos>(delta));
    n_undoable_[seq] = 0;
}

llama_pos Context::seq_pos_min(int64_t seq_id) const {
    return llama_memory_seq_pos_min(memory_, checked_seq(seq_id));
}

llama_pos Context::seq_pos_max(int64_t seq_id) const {
    return llama_memory_seq_pos_max(memory_, checked_seq(seq_id));
}

}  // namespace pyspec
