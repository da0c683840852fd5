#include "state.hpp"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "digest.hpp"
#include "errors.hpp"

namespace pyspec {

namespace {

constexpr char magic[8] = {'p', 'y', 's', 'p', 'e', 'c', 'S', 'Q'};
constexpr uint32_t version = 1;

// Written as it lies in memory; `byte_order` refuses machines of the other order.
struct Header {
    char magic[8];
    uint32_t version;
    uint32_t byte_order;
    uint64_t model_hash;
    uint64_t settings_hash;
    uint32_t flags;
    int32_t pos_max;
    uint64_t n_bytes;
    uint64_t checksum;  // of the state and of this header with checksum 0
};
static_assert(std::is_trivially_copyable_v<Header> && sizeof(Header) == 56, "the header has no padding");

constexpr uint32_t byte_order = 0x01020304;

uint64_t checksum_of(Header header, const void * state) {
    header.checksum = 0;
    return digest(state, header.n_bytes, digest(&header, sizeof(header)));
}

}  // namespace

void state_error(const std::string & reason) {
    throw Error("StateError", {{"reason", reason}});
}

State::Use::Use(State & state) : state_(state) {
    if (state.busy_.exchange(true, std::memory_order_acquire)) {
        busy_error("state");
    }
}

State::Use::~Use() {
    state_.busy_.store(false, std::memory_order_release);
}

uint8_t * State::reserve(size_t n_bytes) {
    n_bytes_ = 0;
    const bool shared = buffer_.use_count() > 1;
    if (n_bytes > capacity_ || shared) {
        const size_t wanted = shared ? n_bytes : n_bytes + n_bytes / 8;
        buffer_.reset();
        capacity_ = 0;
        buffer_ = std::shared_ptr<uint8_t[]>(new uint8_t[wanted]);
        capacity_ = wanted;
    }
    return buffer_.get();
}

void State::commit(size_t n_bytes, const StateOrigin & origin) {
    n_bytes_ = n_bytes;
    origin_ = origin;
}

void State::clear() {
    buffer_.reset();
    capacity_ = 0;
    n_bytes_ = 0;
    origin_ = StateOrigin{};
}

std::string State::to_bytes() const {
    if (n_bytes_ == 0) {
        state_error("it is empty; save one first");
    }
    if ((origin_.flags & LLAMA_STATE_SEQ_FLAGS_ON_DEVICE) != 0) {
        state_error("its tensors are on the device; save it without STATE_ON_DEVICE");
    }
    Header header{};
    std::memcpy(header.magic, magic, sizeof(magic));
    header.version = version;
    header.byte_order = byte_order;
    header.model_hash = origin_.model_hash;
    header.settings_hash = origin_.settings_hash;
    header.flags = origin_.flags;
    header.pos_max = origin_.pos_max;
    header.n_bytes = n_bytes_;
    header.checksum = checksum_of(header, data());
    std::string bytes(sizeof(header) + n_bytes_, '\0');
    std::memcpy(bytes.data(), &header, sizeof(header));
    std::memcpy(bytes.data() + sizeof(header), data(), n_bytes_);
    return bytes;
}

std::shared_ptr<State> State::from_bytes(const void * data, size_t n_bytes) {
    Header header{};
    const auto * bytes = static_cast<const uint8_t *>(data);
    const size_t n_known = std::min(n_bytes, sizeof(magic));
    if (n_known == 0 || std::memcmp(bytes, magic, n_known) != 0) {
        state_error("these bytes do not begin like a saved state");
    }
    if (n_bytes < sizeof(header)) {
        throw Error("StateSizeError", {{"n_bytes", static_cast<int64_t>(n_bytes)},
                                       {"expected_bytes", static_cast<int64_t>(sizeof(header))}});
    }
    std::memcpy(&header, bytes, sizeof(header));
    if (header.byte_order != byte_order || header.version != version) {
        state_error("it has format version " + std::to_string(header.version) + ", this build reads version "
                    + std::to_string(version) + " of this machine's byte order");
    }
    const size_t n_state = n_bytes - sizeof(header);
    if (n_state != header.n_bytes) {
        throw Error("StateSizeError", {{"n_bytes", static_cast<int64_t>(n_bytes)},
                                       {"expected_bytes", static_cast<int64_t>(header.n_bytes + sizeof(header))}});
    }
    if (checksum_of(header, bytes + sizeof(header)) != header.checksum) {
        state_error("its checksum is wrong, the bytes are damaged");
    }
    auto state = std::make_shared<State>();
    std::memcpy(state->reserve(n_state), bytes + sizeof(header), n_state);
    StateOrigin origin;
    origin.model_hash = header.model_hash;
    origin.settings_hash = header.settings_hash;
    origin.flags = header.flags;
    origin.pos_max = header.pos_max;
    state->commit(n_state, origin);
    return state;
}

}  // namespace pyspec
