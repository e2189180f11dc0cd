// The memory that one client shares with its controller: files mapped at I/O virtual addresses (vfio-user, "DMA_MAP"
// and "DMA_UNMAP").
//
// The server's thread maps and unmaps; the engine reads through the controller's AddressSpace meanwhile. A client's
// mistake is an errno for the error reply.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "memory/address_space.h"
#include "vfio/client_share.h"
#include "vfio/peer_memory.h"
#include "vfio/unique_fd.h"

namespace flashmob::transport {

class DmaRegions {
 public:
  // What one client may map at once; of what has a descriptor, it may be less (vfio/client_share.h).
  static constexpr std::size_t kMaxRegions = 8192;
  // I/O addresses from here on are for memory of the server's own, and no client may map them.
  static constexpr std::uint64_t kOwnIova = std::uint64_t{0xFFFF} << 48;
  // Of those, where there is never any memory.
  static constexpr std::uint64_t kNowhereIova = kOwnIova + (std::uint64_t{1} << 46);

  DmaRegions(memory::AddressSpace& space, vfio::ClientShare& share);
  ~DmaRegions();
  DmaRegions(const DmaRegions&) = delete;
  DmaRegions& operator=(const DmaRegions&) = delete;

  // Maps `size_bytes` of the file at `offset`. Without a descriptor the region is only taken note of: what lies there
  // is reached by messages, if at all; what the file does not hold is not reached. Returns 0 or an errno.
  int map(std::uint64_t iova, std::uint64_t size_bytes, const vfio::UniqueFd& file, std::uint64_t offset,
          bool writable);
  // Returns when the engine has finished every copy in the region. Returns 0 or an errno.
  int unmap(std::uint64_t iova, std::uint64_t size_bytes);
  void unmap_all();
  // As unmap_all(), when the address space is gone already.
  void forget_all();

  // How many bytes from `iova` on are in one region that messages reach; 0 if that byte is in none.
  std::uint64_t unshared_from(std::uint64_t iova, bool for_write) const;

  std::size_t count() const { return regions_.size(); }
  // The client has cut a file short that the device then touched.
  bool is_cut() const;
  std::uint64_t shared_bytes() const { return shared_bytes_; }
  std::uint64_t unshared_bytes() const { return unshared_bytes_; }

 private:
  struct Region {
    std::uint64_t size_bytes = 0;
    bool writable = false;
    vfio::PeerMemory memory;  // empty: not shared
  };

  bool overlaps(std::uint64_t iova, std::uint64_t size_bytes) const;
  void drop(Region& region);
  void give_back(std::uint64_t shared_bytes);

  memory::AddressSpace& space_;
  vfio::ClientShare& share_;
  std::uintptr_t arena_;  // where this client's memory is preferably mapped
  std::map<std::uint64_t, Region> regions_;  // by iova, disjoint
  std::uint64_t shared_bytes_ = 0;
  std::uint64_t unshared_bytes_ = 0;
};

}  // namespace flashmob::transport
