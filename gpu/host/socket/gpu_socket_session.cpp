#include "host/socket/gpu_socket_session.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "flashmob/error.h"

namespace flashmob::gpu {
namespace {

// Messages of one client before the others get their turn.
constexpr unsigned kMessagesPerTurn = 64;

template <class T>
void append(std::vector<std::byte>& to, const T& value) {
  const std::size_t at = to.size();
  to.resize(at + sizeof(value));
  std::memcpy(to.data() + at, &value, sizeof(value));
}

void copy_text(std::span<char> to, const std::string& text) {
  std::memcpy(to.data(), text.data(), std::min(to.size() - 1, text.size()));
}

}  // namespace

GpuSocketSession::GpuSocketSession(ServedEngine& served, std::uint32_t controller, std::string engine_text,
                                   vfio::UniqueFd socket)
    : served_(served),
      controller_(controller),
      engine_text_(std::move(engine_text)),
      share_(socket.get()),
      socket_(std::move(socket), wire::kMaxMessageBytes, kMaxMessageFds) {}

GpuSocketSession::~GpuSocketSession() { FLASHMOB_CHECK(gone_); }

bool GpuSocketSession::serve() {
  for (unsigned i = 0; i < kMessagesPerTurn && !leaving_; ++i) {
    vfio::Message message;
    switch (socket_.receive(message)) {
      case vfio::MessageSocket::Received::nothing:
        return true;
      case vfio::MessageSocket::Received::message:
        if (!answer(message)) return false;
        break;
      default:
        reason_ = socket_.error();
        return false;
    }
  }
  return !leaving_;
}

// False if the connection is over.
bool GpuSocketSession::answer(const vfio::Message& message) {
  if ((message.header.flags & vfio::kFlagTypeMask) != vfio::kTypeCommand) {
    reason_ = "it sent a reply that nobody asked for";
    return false;
  }
  try {
    const std::vector<std::byte> payload = handle(message);
    if (leave_asked_) return false;
    return reply(message.header, payload, false);
  } catch (const std::exception& error) {
    const std::string text = error.what();
    return reply(message.header, std::as_bytes(std::span(text)), true);
  }
}

// A client waits for each reply before it asks on, so there is room for this one, or the client does not keep to that.
bool GpuSocketSession::reply(const vfio::Header& to, std::span<const std::byte> payload, bool failed) {
  vfio::Header header{};
  header.message_id = to.message_id;
  header.command = to.command;
  header.flags = vfio::kTypeReply | (failed ? vfio::kFlagError : 0);
  header.error = failed ? EINVAL : 0;
  if (socket_.start_send(header, payload) == vfio::MessageSocket::Sent::whole) return true;
  reason_ = "it does not read its replies";
  return false;
}

std::vector<std::byte> GpuSocketSession::handle(const vfio::Message& message) {
  const auto command = static_cast<wire::Command>(message.header.command);
  if (!described_ && command != wire::Command::describe)
    throw ConfigError("this is a gpu-socket: a client begins with `describe`");
  switch (command) {
    case wire::Command::describe:
      wire::check_describe(message);
      return describe();
    case wire::Command::map:
      map(message);
      return {};
    case wire::Command::unmap:
      unmap(message);
      return {};
    case wire::Command::attach:
      attach(message);
      return {};
    case wire::Command::leave:
      wire::check_leave(message);
      leave_asked_ = message.header;
      reason_ = "it took its leave";
      return {};
  }
  throw ConfigError("command " + std::to_string(message.header.command) + " is none of a gpu-socket's");
}

std::vector<std::byte> GpuSocketSession::describe() {
  described_ = true;
  wire::Description head{};
  head.version = wire::kVersion;
  head.flags = served_.machine().runs_by_itself() ? wire::kKnowsCuda : 0;
  head.namespaces = static_cast<std::uint32_t>(served_.namespaces().size());
  head.most_queues = served_.most_queues();
  head.max_transfer_bytes = served_.config().controller.max_transfer_bytes;
  copy_text(head.profile, served_.config().profile);
  copy_text(head.engine, engine_text_);
  std::vector<std::byte> payload;
  append(payload, head);
  for (const engine::DeviceNamespace& ns : served_.namespaces())
    append(payload, wire::Namespace{ns.blocks, ns.nsid, ns.lba_shift});
  return payload;
}

// --- Memory ---

bool GpuSocketSession::overlaps(std::uint64_t address, std::uint64_t bytes) const {
  const auto after = pieces_.lower_bound(address);
  if (after != pieces_.end() && after->first - address < bytes) return true;
  if (after == pieces_.begin()) return false;
  const auto& [begin, piece] = *std::prev(after);
  return address - begin < piece.bytes;
}

void GpuSocketSession::map(const vfio::Message& message) {
  const wire::MapRequest request = wire::read_map(message);
  if (overlaps(request.address, request.bytes)) throw ConfigError("part of this memory is mapped already");
  if (pieces_.size() >= kMaxPieces)
    throw ConfigError("as many pieces of memory as possible are mapped: use larger ones");
  Piece piece = open_piece(request, message);
  const auto [place, fresh] = pieces_.emplace(request.address, std::move(piece));
  FLASHMOB_CHECK(fresh);
  mapped_bytes_ += request.bytes;
  publish_regions();
}

GpuSocketSession::Piece GpuSocketSession::open_piece(const wire::MapRequest& request, const vfio::Message& message) {
  Piece piece;
  piece.bytes = request.bytes;
  served_.check_kept();
  if (request.kind == wire::Kind::cuda) {
    piece.imported = served_.machine().import(request.handle);
    piece.base = static_cast<std::byte*>(piece.imported) + request.offset;
    return piece;
  }
  if (!share_.take_addresses(request.bytes))
    throw ConfigError("this client has mapped as much memory as it may: let some of it go, or share less");
  try {
    const int error = piece.file.map(message.fds[0].get(), request.offset, request.bytes, true);
    if (error != 0)
      throw ConfigError(std::string("the file cannot be mapped (") + std::strerror(error) +
                        "): it must be one in memory (memfd_create), open for writing, and as long as its piece");
    piece.base = piece.file.data();
    served_.machine().share(piece.base, piece.bytes);
  } catch (...) {
    share_.give_addresses(request.bytes);
    throw;
  }
  return piece;
}

void GpuSocketSession::release(Piece& piece) {
  if (piece.imported != nullptr)
    served_.machine().close_import(piece.imported);
  else
    served_.machine().unshare(piece.base, piece.bytes);
  if (piece.imported == nullptr) share_.give_addresses(piece.bytes);
  served_.keep(std::move(piece.file));
  piece.file.reset();
}

void GpuSocketSession::unmap(const vfio::Message& message) {
  const wire::UnmapRequest request = wire::read_unmap(message);
  const auto found = pieces_.find(request.address);
  if (found == pieces_.end() || found->second.bytes != request.bytes)
    throw ConfigError("no piece of memory was mapped like this");
  const auto holds = [&](std::uint64_t address) { return address - request.address < request.bytes; };
  for (const wire::QueuePair& pair : pairs_)
    if (holds(pair.sq) || holds(pair.cq) || holds(pair.sq_doorbell) || holds(pair.cq_doorbell))
      throw ConfigError("queues lie in this memory: take leave first");
  Piece piece = std::move(found->second);
  pieces_.erase(found);
  mapped_bytes_ -= request.bytes;
  publish_regions();
  release(piece);
}

void GpuSocketSession::publish_regions() {
  std::vector<engine::Region> regions;
  for (const auto& [address, piece] : pieces_) regions.push_back({address, piece.bytes, piece.base, true});
  served_.engine().set_regions(std::move(regions), controller_);
  served_.settle();
}

std::byte* GpuSocketSession::locate(std::uint64_t address, std::uint64_t bytes) const {
  const auto after = pieces_.upper_bound(address);
  if (after != pieces_.begin()) {
    const auto& [begin, piece] = *std::prev(after);
    const std::uint64_t offset = address - begin;
    if (offset < piece.bytes && bytes <= piece.bytes - offset) return piece.base + offset;
  }
  throw ConfigError("a ring or a doorbell does not lie in one piece of mapped memory");
}

// --- Queues ---

void GpuSocketSession::attach(const vfio::Message& message) {
  std::vector<wire::QueuePair> pairs = wire::read_attach(message);
  if (queues_) throw ConfigError("queues are attached already: all of them come at once");
  std::vector<EngineQueue> queues;
  for (const wire::QueuePair& pair : pairs) {
    EngineQueue queue;
    queue.sq = reinterpret_cast<const nvme::Sqe*>(locate(pair.sq, pair.entries * sizeof(nvme::Sqe)));
    queue.cq = reinterpret_cast<nvme::Cqe*>(locate(pair.cq, pair.entries * sizeof(nvme::Cqe)));
    queue.sq_doorbell = reinterpret_cast<std::uint32_t*>(locate(pair.sq_doorbell, sizeof(std::uint32_t)));
    queue.cq_doorbell = reinterpret_cast<std::uint32_t*>(locate(pair.cq_doorbell, sizeof(std::uint32_t)));
    queue.entries = pair.entries;
    queue.host_looks = pair.host_looks != 0;
    queues.push_back(queue);
  }
  served_.reserve_queues(static_cast<std::uint32_t>(queues.size()));
  queues_.emplace(served_.engine(), queues, controller_);
  pairs_ = std::move(pairs);
  served_.settle();
}

bool GpuSocketSession::has_cut_memory() const {
  return std::any_of(pieces_.begin(), pieces_.end(), [](const auto& held) { return held.second.file.is_cut(); });
}

// --- The end ---

void GpuSocketSession::leave() {
  if (std::exchange(leaving_, true)) return;
  if (!queues_) return;
  queues_->drop();
  served_.settle();
}

bool GpuSocketSession::gone() {
  if (gone_ || !leaving_) return gone_;
  // A kernel that has gone down uses nothing.
  if (queues_ && !served_.lost() && !queues_->closed()) return false;
  if (queues_) {
    served_.release_queues(queues());
    queues_->remove();
    queues_.reset();
  }
  std::map<std::uint64_t, Piece> pieces = std::exchange(pieces_, {});
  publish_regions();
  for (auto& [address, piece] : pieces) release(piece);
  mapped_bytes_ = 0;
  if (leave_asked_) reply(*leave_asked_, {}, false);
  return gone_ = true;
}

}  // namespace flashmob::gpu
