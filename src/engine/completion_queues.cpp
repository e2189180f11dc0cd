#include "engine/completion_queues.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "engine/completion_entry.h"

namespace flashmob::engine {

Cq& CompletionQueues::add(std::unique_ptr<Cq> cq) {
  look_for_room(*cq);
  cqs_.push_back(std::move(cq));
  dirty_.reserve(cqs_.size());
  return *cqs_.back();
}

Cq* CompletionQueues::find(const controller::Controller& controller, std::uint16_t cqid) {
  for (auto& cq : cqs_)
    if (cq->controller == &controller && cq->cqid == cqid) return cq.get();
  return nullptr;
}

void CompletionQueues::remove(Cq& cq) {
  if (cq.dirty) {
    std::erase(dirty_, &cq);
    if (cq.coalescing_since_ns != 0) --coalescing_;
  }
  std::erase_if(cqs_, [&cq](const auto& held) { return held.get() == &cq; });
}

void CompletionQueues::refresh_rings(PortContext& port) {
  for (auto& cq : cqs_) {
    if (cq->port != &port) continue;
    cq->ring = reinterpret_cast<nvme::Cqe*>(
        port.reader.translate(cq->iova, std::uint64_t{cq->entries} * sizeof(nvme::Cqe), true));
    cq->head_doorbell = port.doorbell(2u * cq->cqid + 1, cq->bar_doorbell, cq->event_index);
  }
}

void CompletionQueues::put(Cq& cq, const Sq& sq, const HotRequest& hot, std::uint32_t dw0) {
  if (cq.ring == nullptr) [[unlikely]]
    return;  // its memory was unmapped: nobody can see the entry
  write_entry(cq.ring + cq.tail, dw0, entry_of(entry_base(sq, cq), hot));
  prefetch_ahead(cq, cq.tail);
  advance(cq, 1);
}

bool CompletionQueues::look_for_room(Cq& cq) {
  const auto ahead = [&cq](std::uint32_t to, std::uint32_t from) {
    return to >= from ? to - from : to + cq.entries - from;
  };
  const std::uint32_t head = std::atomic_ref<std::uint32_t>(*cq.head_doorbell).load(std::memory_order_acquire);
  if (head != cq.head) {
    if (head >= cq.entries || ahead(head, cq.head) > ahead(cq.tail, cq.head)) {
      // Base 2.0c, 3.3.3.1 and Figure 149: a head beyond what was posted is an invalid doorbell value.
      if (cq.bad_head != head) {
        cq.bad_head = head;
        cq.controller->raise_error_event(nvme::AsyncErrorInfo::invalid_doorbell_value);
      }
    } else {
      cq.head = head;
      cq.bad_head = 0xFFFFFFFFu;
    }
  }
  if (cq.event_index != nullptr)
    std::atomic_ref<std::uint32_t>(*cq.event_index).store(cq.head, std::memory_order_relaxed);
  cq.free = cq.entries - 1 - ahead(cq.tail, cq.head);
  return cq.free != 0;
}

void CompletionQueues::raise_interrupts() {
  for (std::size_t i = 0; i < dirty_.size(); ++i) {
    Cq& cq = *dirty_[i];
    const controller::Coalescing& rule = cq.controller->coalescing();
    const bool wait = rule.time_100us != 0 && cq.cqid != 0 && cq.coalesced <= rule.threshold &&
                      !cq.controller->coalescing_disabled(cq.vector);
    if (cq.coalescing_since_ns == 0) {
      cq.coalescing_since_ns = time_.now_ns;
      ++coalescing_;
    }
    if (wait && time_.now_ns - cq.coalescing_since_ns < rule.time_100us * 100'000ull) continue;
    cq.dirty = false;
    cq.coalesced = 0;
    cq.coalescing_since_ns = 0;
    --coalescing_;
    if (*cq.port->interrupt) (*cq.port->interrupt)(cq.vector);
    dirty_[i--] = dirty_.back();
    dirty_.pop_back();
  }
}

}  // namespace flashmob::engine
