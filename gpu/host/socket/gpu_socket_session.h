// One client of a gpu-socket on the server's side: its memory, its queues, and what it asks (gpu_socket.h).
//
// The client is not trusted: whatever it sends, it gets a reply that says why not, or loses its connection, and reaches
// nobody's memory but what it has mapped. For one thread, that of the ServedEngine.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "host/engine/queue_attachment.h"
#include "host/socket/gpu_socket.h"
#include "host/socket/served_engine.h"
#include "vfio/client_share.h"
#include "vfio/message_socket.h"
#include "vfio/peer_memory.h"
#include "vfio/unique_fd.h"

namespace flashmob::gpu {

class GpuSocketSession {
 public:
  // `controller` of the engine's is this client's alone until it has gone.
  GpuSocketSession(ServedEngine& served, std::uint32_t controller, std::string engine_text, vfio::UniqueFd socket);
  ~GpuSocketSession();
  GpuSocketSession(const GpuSocketSession&) = delete;
  GpuSocketSession& operator=(const GpuSocketSession&) = delete;

  int fd() const { return socket_.fd(); }
  // Answers what has arrived. False once the connection is of no more use, or the client takes its leave.
  bool serve();
  // The engine fetches nothing more; gone() turns true when it uses none of the memory any more, which is free then.
  void leave();
  bool gone();

  std::uint32_t controller() const { return controller_; }
  std::uint32_t queues() const { return queues_ ? static_cast<std::uint32_t>(queues_->size()) : 0; }
  std::uint64_t mapped_bytes() const { return mapped_bytes_; }
  const std::string& reason() const { return reason_; }  // why serve() said false
  void give_up(std::string reason) { reason_ = std::move(reason); }
  bool described() const { return described_; }
  // The client has cut memory short that it shares.
  bool has_cut_memory() const;

 private:
  // Memory of the client's at `base`, as the engine sees it.
  struct Piece {
    std::uint64_t bytes = 0;
    std::byte* base = nullptr;
    vfio::PeerMemory file;
    void* imported = nullptr;  // of a GPU
  };
  // Fewer than a GPU engine knows regions, and for all clients fewer than a process may have mappings.
  static constexpr std::size_t kMaxPieces = 1024;
  // No command comes with more than one.
  static constexpr std::size_t kMaxMessageFds = 4;

  bool answer(const vfio::Message& message);
  std::vector<std::byte> handle(const vfio::Message& message);
  std::vector<std::byte> describe();
  void map(const vfio::Message& message);
  void unmap(const vfio::Message& message);
  void attach(const vfio::Message& message);

  Piece open_piece(const wire::MapRequest& request, const vfio::Message& message);
  void release(Piece& piece);
  bool overlaps(std::uint64_t address, std::uint64_t bytes) const;
  // Where the engine sees it; throws ConfigError unless it lies in one piece.
  std::byte* locate(std::uint64_t address, std::uint64_t bytes) const;
  void publish_regions();
  bool reply(const vfio::Header& to, std::span<const std::byte> payload, bool failed);

  ServedEngine& served_;
  const std::uint32_t controller_;
  const std::string engine_text_;
  vfio::ClientShare share_;
  vfio::MessageSocket socket_;
  bool described_ = false;
  std::map<std::uint64_t, Piece> pieces_;  // by the client's address
  std::vector<wire::QueuePair> pairs_;
  std::optional<QueueAttachment> queues_;
  std::uint64_t mapped_bytes_ = 0;
  std::optional<vfio::Header> leave_asked_;
  bool leaving_ = false;
  bool gone_ = false;
  std::string reason_;
};

}  // namespace flashmob::gpu
