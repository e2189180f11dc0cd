// Moving the data of plain transfers: one page of host memory and one piece of media each.
#include <cstring>

#include "command_set/nvm.h"
#include "engine/mover.h"
#include "media/page_access.h"

namespace flashmob::engine {
namespace {

// Copies that wait are asked for by the batch they come with unless so many before them have been.
constexpr std::uint32_t kAskEarly = 32;

}  // namespace

// Has the oldest copies made, in short loops of few instructions each: while copies wait for memory, only so many of
// them overlap as fit into the CPU's window.
void Mover::move_plain(Budget& left) {
  if (!has_room_for(kMaxSliceCopies)) return left.spend();
  MoveQueue& moves = in_turn();
  CopyRun run = moves.run();
  const std::span<const Copy> pending = run.copies;
  std::uint32_t count = 0, bytes = 0;
  while (count < pending.size() && count < left.copies && bytes < left.bytes && pending[count].bytes != 0)
    bytes += pending[count++].bytes;
  if (context_.locks != nullptr) count = look_at_sources(pending.first(count));
  left.take(count, bytes);
  bool made = true;
  if (!submit(run, count, outgrows_cache(pending[0].bytes), made)) [[unlikely]]
    move_plain_singly(moves, pending.first(count));
  if (context_.locks != nullptr) copy_torn_again(moves, pending.first(count));
  if (made) [[likely]] {
    completer_.data_moved(pending.first(count));
  } else {
    copies_in_flight_ += count;
    collect_copies();
  }
  moves.set_asked(run.asked);
  moves.pop(count);
  end_turn();
}

// With other threads that copy, plain transfers are Reads. Returns how many, one at least, nobody is writing now.
std::uint32_t Mover::look_at_sources(std::span<const Copy> copies) {
  using command_set::PieceLocks;
  for (std::uint32_t i = 0; i < copies.size(); ++i) {
    const Copy& copy = copies[i];
    const std::uint64_t pieces[] = {PieceLocks::piece_of(copy.from), PieceLocks::piece_of(copy.from + copy.bytes - 1)};
    for (std::size_t k = 0; k < 2; ++k) {
      std::uint64_t look = context_.locks->look(pieces[k]);
      if (PieceLocks::busy(look)) {
        if (i != 0) return i;
        context_.locks->lock(pieces[k], 1);  // when we have it, its writer is done
        look = context_.locks->look(pieces[k]);  // ours: it will not be unchanged
        context_.locks->unlock(pieces[k], 1);
      }
      looks_[i][k] = look;
    }
  }
  return static_cast<std::uint32_t>(copies.size());
}

// Those that somebody may have written meanwhile.
void Mover::copy_torn_again(const MoveQueue& moves, std::span<const Copy> copies) {
  using command_set::PieceLocks;
  for (std::uint32_t i = 0; i < copies.size(); ++i) {
    const Copy& copy = copies[i];
    const std::uint64_t first = PieceLocks::piece_of(copy.from);
    const std::uint64_t last = PieceLocks::piece_of(copy.from + copy.bytes - 1);
    if (context_.locks->unchanged(first, looks_[i][0]) && context_.locks->unchanged(last, looks_[i][1])) [[likely]]
      continue;
    context_.locks->lock(first, last - first + 1);
    const bool good = media::try_access([&] { std::memcpy(copy.to, copy.from, copy.bytes); });
    context_.locks->unlock(first, last - first + 1);
    if (!good && !requests_.hot(copy.token).has(kFailed))
      fail_one(copy, moves.plain(i), nvme::Status::unrecovered_read_error);
  }
}

// Makes the oldest copies one by one, so that only those fail whose pages are gone.
void Mover::move_plain_singly(const MoveQueue& moves, std::span<const Copy> copies) {
  for (std::uint32_t i = 0; i < copies.size(); ++i) {
    const Copy& copy = copies[i];
    if (media::try_access([&] { std::memcpy(copy.to, copy.from, copy.bytes); })) continue;
    const PlainTransfer& plain = moves.plain(i);
    fail_one(copy, plain, plain.is_write() ? plain.ns->write_failure() : nvme::Status::unrecovered_read_error);
  }
}

void Mover::stop_zombies(PortContext& port) {
  port.moves->for_each_plain([this](Copy& copy, const PlainTransfer&) {
    if (requests_.hot(copy.token).has(kZombie)) copy.bytes = 0;
  });
}

void Mover::fail_plain(const command_set::Namespace& ns, nvme::Status status, bool writes_alone) {
  for (MoveQueue* const moves : turns_)
    moves->for_each_plain([&](Copy& copy, const PlainTransfer& plain) {
      if (plain.ns != &ns || (writes_alone && !plain.is_write())) return;
      fail_one(copy, plain, status);
      copy.bytes = 0;  // prepare() goes on
    });
}

void Mover::refresh(PortContext& port) {
  port.moves->for_each_plain([&](Copy& copy, const PlainTransfer& plain) {
    std::byte* const host = port.reader.translate(plain.iova(), copy.bytes, !plain.is_write());
    if (host == nullptr) {  // unmapped after it had been fetched
      fail_one(copy, plain, nvme::Status::data_transfer_error);
      copy.bytes = 0;
      return;
    }
    if (plain.is_write())
      copy.from = host;
    else
      copy.to = host;
  });
  redo_copies();
}

void Mover::fail_one(const Copy& copy, const PlainTransfer& plain, nvme::Status status) {
  const std::byte* const media = plain.is_write() ? copy.to : copy.from;
  const auto lba = static_cast<std::uint64_t>(media - plain.ns->base) >> plain.ns->lba_shift;
  requests_.fail(requests_.hot(copy.token), status, plain.ns->nsid, lba);
}

void Mover::queue(const Sq& sq, command_set::Namespace& ns, const nvme::Sqe* sqes, std::span<const Slot> slots,
                  bool whole) {
  note_pages(ns);
  const command_set::NamespaceShape shape = ns;
  const PlainRule plain(sq, ns, whole, context_.locks);
  PortContext& port = *requests_.queue(sq.index).cq->port;
  memory::AddressSpace::Reader& reader = port.reader;
  memory::Region region = reader.last_match();
  MoveQueue& queue = *port.moves;
  take_turns(queue);
  MoveQueue::Writer moves = queue.start(static_cast<std::uint32_t>(slots.size()));
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const nvme::Sqe& sqe = sqes[i];
    const command_set::Transfer transfer = command_set::transfer_of(sqe, shape);
    const bool is_write = transfer.is_write;
    const std::uint32_t bytes = transfer.bytes;
    const std::uint64_t iova = sqe.prp1;
    std::byte* host = nullptr;
    if (plain.takes(sqe, transfer)) [[likely]] {
      host = region.translate(iova, bytes, !is_write);
      if (host == nullptr) [[unlikely]] {
        host = reader.translate(iova, bytes, !is_write);
        region = reader.last_match();
      }
    }
    if (host == nullptr) [[unlikely]] {
      requests_.add_transfer(slots[i], sqe, ns);
      moves.push_other(slots[i]);
      continue;
    }
    std::byte* const media = shape.base + transfer.media_offset;
    moves.push({is_write ? media : host, is_write ? host : media, bytes, slots[i]},
               PlainTransfer::of(iova, is_write, &ns));
  }
  queue.finish(moves);
  // Where few copies wait, nothing else would be done between asking for these and making them. In virtual time, where
  // no completion can be late by that, small batches are the rule and prefetches would only queue up.
  if (queue.asked() < kAskEarly && !context_.time.clock.is_virtual()) {
    CopyRun run = queue.run();
    copy_engine_->ask(run);
    queue.set_asked(run.asked);
  }
}

void Mover::take_plain(Slot slot) {
  const Requests::PlainRequest& plain = requests_.plain(slot);
  const bool is_write = plain.transfer.is_write();
  PortContext& port = requests_.port_of(requests_.hot(slot));
  note_pages(*plain.transfer.ns);
  std::byte* host = nullptr;
  if (port.reader.inside()) {
    host = port.reader.translate(plain.transfer.iova(), plain.bytes, !is_write);
  } else {
    port.generation = ~std::uint64_t{0};  // looked up when the guard is opened
  }
  const Copy copy = is_write ? Copy{plain.media, host, plain.bytes, slot} : Copy{host, plain.media, plain.bytes, slot};
  take_turns(*port.moves);
  if (host == nullptr && port.reader.inside()) [[unlikely]] {
    fail_one(copy, plain.transfer, nvme::Status::data_transfer_error);
    port.moves->push_other(slot);
  } else {
    port.moves->push(copy, plain.transfer);
  }
}

}  // namespace flashmob::engine
