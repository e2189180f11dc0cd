// An application's queues on a GPU engine, all of those that lie in one arena: of this process, or of another one that
// shares the arena's memory by CUDA IPC. Commands name addresses as the application sees them; the engine reaches the
// same memory at its own.
//
// Between processes: the application makes an ArenaTicket and sends it in any way it likes; the process that has the
// SSD imports it. Both must trust each other, for an imported arena is memory that a kernel writes. Two processes'
// kernels run side by side under MPS only; else the GPU gives each its turn, and times mean nothing. Thread rule: as
// DeviceEngine.
#pragma once

#include <cstdint>
#include <type_traits>
#include <vector>

#include "flashmob/gpu/queue_arena.h"
#include "flashmob/gpu/simt/cuda_library.h"
#include "host/device_engine.h"

namespace flashmob::gpu {

// The memory of `arena`, which commands name from `iova` on, for DeviceEngine::set_regions().
engine::Region region_of(const QueueArena& arena, std::uint64_t iova);

class ArenaAttachment {
 public:
  // Adds every queue pair; in effect with the engine's next commit(). `arena` is as the engine sees it. Throws
  // ConfigError, with nothing added, if the engine's units have no room.
  ArenaAttachment(DeviceEngine& engine, const QueueArena& arena);
  // Nothing more is fetched, nothing more is posted, from the next commit() on; the memory is still used until
  // closed().
  void drop();
  bool closed() const;
  // After closed(): the engine may give the places to others.
  void remove();

 private:
  struct Pair {
    DeviceEngine::Queue cq, sq;
  };
  DeviceEngine& engine_;
  std::vector<Pair> pairs_;
};

// What another process must know. Plain data of one machine.
struct ArenaTicket {
  static constexpr std::uint32_t kVersion = 1;
  std::uint32_t version = kVersion;
  ArenaShape shape;
  std::uint64_t address = 0;  // of the arena, in the process that made it
  std::uint64_t offset = 0;   // of the arena in the memory that the handle names
  simt::CudaMemoryHandle handle{};
};
static_assert(std::is_trivially_copyable_v<ArenaTicket>);

// `memory` is what CudaBackend::allocate() gave, of CudaPlace::device; the arena lies in it. It stays until nobody has
// it imported any more.
ArenaTicket make_ticket(simt::CudaBackend& cuda, void* memory, const QueueArena& arena);
// Throws ConfigError if no arena can be like that.
void check_ticket(const ArenaTicket& ticket);

// Another process's arena, in this one's address space as long as this object is there: longer than its attachment.
class ImportedArena {
 public:
  // Throws ConfigError or CudaError.
  ImportedArena(simt::CudaBackend& cuda, const ArenaTicket& ticket);
  ~ImportedArena();
  ImportedArena(const ImportedArena&) = delete;
  ImportedArena& operator=(const ImportedArena&) = delete;

  const QueueArena& arena() const { return arena_; }
  engine::Region region() const { return region_of(arena_, iova_); }

 private:
  simt::CudaBackend& cuda_;
  void* memory_;
  std::uint64_t iova_;
  QueueArena arena_;
};

}  // namespace flashmob::gpu
