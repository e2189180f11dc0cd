// The dispatcher's queues come, go, and are put in the order in which they are served.
#include <algorithm>
#include <utility>

#include "engine/dispatcher.h"

namespace flashmob::engine {

bool Dispatcher::knows(const media::Media& media) {
  return std::any_of(sqs_.begin(), sqs_.end(), [&](const auto& sq) {
    return sq->fused_first != kNoSlot && workers_[sq->worker]->slab().cold(sq->fused_first).ns->media == &media;
  });
}

Sq& Dispatcher::add_sq(std::unique_ptr<Sq> sq) {
  sq->watch.unseen_ns = time_.now_ns;
  sqs_.push_back(std::move(sq));
  sort_queues();
  return *sqs_.back();
}

Sq* Dispatcher::find_sq(const controller::Controller& controller, std::uint16_t sqid) {
  for (auto& sq : sqs_)
    if (sq->controller == &controller && sq->sqid == sqid) return sq.get();
  return nullptr;
}

void Dispatcher::remove_sq(Sq& sq) {
  settle_watches();
  watches_.clear();
  sqs_.erase(std::find_if(sqs_.begin(), sqs_.end(), [&sq](const auto& held) { return held.get() == &sq; }));
  sort_queues();
}

void Dispatcher::remove_leaving() {
  settle_watches();
  watches_.clear();
  std::erase_if(sqs_, [](const auto& sq) { return sq->port->is_leaving; });
  sort_queues();
}

void Dispatcher::refresh_rings(PortContext& port) {
  for (auto& sq : sqs_) {
    if (sq->port != &port) continue;
    sq->ring = reinterpret_cast<const nvme::Sqe*>(
        port.reader.translate(sq->iova, std::uint64_t{sq->entries} * sizeof(nvme::Sqe), false));
    sq->doorbell = port.doorbell(2u * sq->sqid, sq->bar_doorbell, sq->event_index);
  }
  watch_queues();
}

// Hands what the watches know of their queues back to these, before the watches are made anew.
void Dispatcher::settle_watches() {
  for (const Watch& watch : watches_)
    watch.sq->watch.was_empty(std::max(watch.empty_ns, lines_.unchanged_ns(watch.place.line)));
}

void Dispatcher::watch_queues() {
  settle_watches();
  watches_.clear();
  lines_.clear();
  line_watches_.clear();
  for (Sq* const sq : order_) {
    const std::uint32_t head = sq->head.load(std::memory_order_relaxed);
    const DoorbellLines::Place place = lines_.add(sq->doorbell, head);
    if (place.line == line_watches_.size()) line_watches_.emplace_back().fill(kNoWatch);
    line_watches_[place.line][place.lane] = static_cast<std::uint32_t>(watches_.size());
    watches_.push_back({sq->doorbell, sq, sq->ring, 0, head, place});
  }
}

void Dispatcher::sort_queues() {
  // Admin queues first, then by class, then in order of creation: the round-robin order within a class.
  order_.clear();
  const auto take = [this](const auto& belongs) {
    for (const auto& sq : sqs_)
      if (belongs(*sq)) order_.push_back(sq.get());
  };
  const auto rank = [](const Sq* sq) { return sq->admin ? 0 : static_cast<int>(sq->priority); };
  take([](const Sq& sq) { return sq.admin; });
  for (int priority = 0; priority < static_cast<int>(kPriorityClasses); ++priority)
    take([&](const Sq& sq) { return !sq.admin && rank(&sq) == priority; });
  watch_queues();
  weighted_ = false;
  next_ = nullptr;
  burst_ = kMaxBatch;
  classes_ = {};
  classes_[0].credits = kMaxBatch;
  for (std::uint32_t i = 0; i < order_.size(); ++i) {
    PriorityClass& group = classes_[static_cast<std::size_t>(rank(order_[i]))];
    if (group.count == 0) group.first = i;
    ++group.count;
    if (order_[i]->admin) continue;
    // With several controllers on one unit the last one's features rule; each controller's weights are its own wish.
    const controller::Arbitration& wish = order_[i]->controller->arbitration();
    weighted_ |= wish.weighted_round_robin;
    if (wish.burst_log2 < 7) burst_ = std::min(burst_, 1u << wish.burst_log2);
    for (std::uint32_t priority = 1; priority < kPriorityClasses; ++priority)
      classes_[priority].credits =
          credits_of(priority, kMaxBatch, wish.high_weight, wish.medium_weight, wish.low_weight);
  }
}

}  // namespace flashmob::engine
