// Plain accesses: which of them are not ordered with others (as FastTrack does it: Flanagan and Freund, PLDI 2009).
#include <string>

#include "simt/weak_memory.h"

namespace flashmob::gpu::simt::detail {

WeakMemory::Cell& WeakMemory::cell(std::uintptr_t at) {
  const std::uintptr_t page_at = at / kPageBytes;
  if (last_page_ == nullptr || page_at != last_page_at_) {
    last_page_ = &pages_[page_at];
    last_page_at_ = page_at;
  }
  return last_page_->cells[at % kPageBytes / kGrain];
}

bool WeakMemory::on_own_stack(std::uintptr_t at) const {
  return at - reinterpret_cast<std::uintptr_t>(stack_.bottom) < stack_.bytes;
}

void WeakMemory::read(std::uintptr_t at, std::uint64_t bytes) {
  if (on_own_stack(at)) return;
  for (std::uintptr_t i = at / kGrain * kGrain; i < at + bytes; i += kGrain) read_cell(cell(i));
}

void WeakMemory::write(std::uintptr_t at, std::uint64_t bytes) {
  if (on_own_stack(at)) return;
  for (std::uintptr_t i = at / kGrain * kGrain; i < at + bytes; i += kGrain) write_cell(cell(i));
}

void WeakMemory::read_cell(Cell& cell) {
  if (cell.location != kNone) {
    if (agent_ == kWorld) {
      // An SSD looks at a doorbell, or a host at a word: what it tells is known from then on.
      const Location& word = locations_[cell.location];
      self().clock.join(location(word.at, word.bytes).values.back().told);
      return;
    }
    for (const Value& value : locations_[cell.location].values) {
      if (value.store.agent != kWorld && !ordered(value.store))
        return race("reads", {value.store, value.line}, "stored as a word");
    }
  }
  if (!ordered(cell.write.event)) return race("reads", cell.write, "wrote");
  if (cell.read.event.agent != agent_ && cell.read.event.time != 0 && !ordered(cell.read.event)) {
    if (cell.others == kNone) {
      cell.others = static_cast<std::uint32_t>(readers_.size());
      readers_.emplace_back();
    }
    readers_[cell.others].push_back(cell.read);
  }
  cell.read = {now(), self().line};
}

void WeakMemory::write_cell(Cell& cell) {
  if (cell.location != kNone) {
    if (agent_ == kWorld) {
      // An SSD's store, which is there at once and for whoever acquires it.
      drop(cell);
      cell = Cell{};
      cell.write = {now(), self().line};
      return;
    }
    for (const Value& value : locations_[cell.location].values) {
      if (value.store.agent != kWorld && !ordered(value.store))
        return race("writes", {value.store, value.line}, "stored as a word");
      for (const Event& reader : value.readers) {
        if (reader.agent != kWorld && !ordered(reader)) return race("writes", {reader, 0}, "read as a word");
      }
    }
    drop(cell);
  }
  if (!ordered(cell.write.event)) return race("writes", cell.write, "wrote");
  if (!ordered(cell.read.event)) return race("writes", cell.read, "read");
  if (cell.others != kNone) {
    for (const Access& each : readers_[cell.others]) {
      if (!ordered(each.event)) return race("writes", each, "read");
    }
    readers_[cell.others].clear();
  }
  cell.write = {now(), self().line};
  cell.read = {};
}

// A word's access beside plain ones. The world's plain ones are an SSD's, which are words' to it.
void WeakMemory::check_atomic(std::uintptr_t at, std::uint32_t bytes, bool writes) {
  if (agent_ == kWorld) return;
  for (std::uintptr_t i = at / kGrain * kGrain; i < at + bytes; i += kGrain) {
    const Cell& cell = this->cell(i);
    if (cell.write.event.agent != kWorld && !ordered(cell.write.event))
      return race(writes ? "stores a word" : "loads a word", cell.write, "wrote");
    if (writes && cell.read.event.agent != kWorld && !ordered(cell.read.event))
      return race("stores a word", cell.read, "read");
  }
}

void WeakMemory::forget(std::uintptr_t at, std::uint64_t bytes) {
  for (std::uintptr_t i = at / kGrain * kGrain; i < at + bytes; i += kGrain) {
    const auto page = pages_.find(i / kPageBytes);
    if (page == pages_.end()) {
      i = (i / kPageBytes + 1) * kPageBytes - kGrain;
      continue;
    }
    Cell& cell = page->second.cells[i % kPageBytes / kGrain];
    if (cell.location != kNone) drop(cell);
    cell = Cell{};
  }
}

std::string WeakMemory::place(Agent agent, std::uint32_t line) const {
  std::string who = agent == kWorld ? "the world" : "lane " + std::to_string(agent - 1);
  const std::string file = lines_[line].file;
  if (line == 0) return who;
  return who + " (after " + file.substr(file.rfind('/') + 1) + ":" + std::to_string(lines_[line].line) + ")";
}

void WeakMemory::race(const char* what, const Access& with, const char* with_what) {
  if (!race_.empty()) return;
  race_ = "race (seed " + std::to_string(seed_) + "): " + place(agent_, self().line) + " " + what + " what " +
          place(with.event.agent, with.line) + " " + with_what + ", and nothing orders the two";
}

}  // namespace flashmob::gpu::simt::detail
