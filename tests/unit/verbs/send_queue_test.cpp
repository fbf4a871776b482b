// Promise: credits are exact.  A context whose ops record what is posted stands below.
#include "verbs/send_queue.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace tutti::verbs {
namespace {

struct Recorder {
  ibv_context context{};
  ibv_qp pair{};
  static inline std::vector<ibv_send_wr> posted;
  static inline int refuse_with = 0;

  Recorder() {
    posted.clear();
    refuse_with = 0;
    pair.context = &context;
    context.ops.post_send = [](ibv_qp*, ibv_send_wr* request, ibv_send_wr**) {
      if (refuse_with != 0) return refuse_with;
      EXPECT_EQ(request->next, nullptr) << "requests are never chained";
      posted.push_back(*request);
      return 0;
    };
  }
};

TEST(SendQueue, every_kth_request_is_signaled_and_returns_k_credits) {
  Recorder recorder;
  SendQueue queue(8);
  ASSERT_EQ(queue.signal_every(), 4u);
  PreparedPut put;
  put.request.wr_id = CompletionTag{3, queue.signal_every()}.encoded();
  put.request.send_flags = IBV_SEND_INLINE;
  for (int i = 0; i < 8; ++i) {
    ASSERT_TRUE(queue.has_credit());
    ASSERT_EQ(queue.post(&recorder.pair, put), 0);
    const bool signaled = (Recorder::posted.back().send_flags & IBV_SEND_SIGNALED) != 0;
    EXPECT_EQ(signaled, i % 4 == 3) << i;
    EXPECT_TRUE((Recorder::posted.back().send_flags & IBV_SEND_INLINE) != 0);
  }
  EXPECT_FALSE(queue.has_credit());
  const CompletionTag tag = CompletionTag::decoded(Recorder::posted[3].wr_id);
  EXPECT_EQ(tag.connection, 3u);
  queue.completed(tag.finished);
  EXPECT_TRUE(queue.has_credit());
  EXPECT_EQ(queue.in_flight(), 4u);
}

TEST(SendQueue, flush_stands_for_everything_unsignaled) {
  Recorder recorder;
  SendQueue queue(8);
  PreparedPut put;
  ASSERT_EQ(queue.post(&recorder.pair, put), 0);
  ASSERT_EQ(queue.post(&recorder.pair, put), 0);
  ASSERT_EQ(queue.flush(&recorder.pair, 5), 0);
  const CompletionTag tag = CompletionTag::decoded(Recorder::posted.back().wr_id);
  EXPECT_EQ(tag.connection, 5u);
  EXPECT_EQ(tag.finished, 3u);
  queue.completed(tag.finished);
  EXPECT_EQ(queue.in_flight(), 0u);
  ASSERT_EQ(queue.flush(&recorder.pair, 5), 0);
  EXPECT_EQ(Recorder::posted.size(), 3u) << "nothing unsignaled, nothing posted";
}

TEST(SendQueue, refused_post_costs_no_credit) {
  Recorder recorder;
  SendQueue queue(2);
  PreparedPut put;
  put.request.wr_id = CompletionTag{3, queue.signal_every()}.encoded();
  Recorder::refuse_with = ENOMEM;
  EXPECT_EQ(queue.post(&recorder.pair, put), ENOMEM);
  EXPECT_EQ(queue.in_flight(), 0u);
}

TEST(SendQueueDeathTest, posting_without_credit_is_a_programmers_error) {
  Recorder recorder;
  SendQueue queue(1);
  PreparedPut put;
  put.request.wr_id = CompletionTag{3, queue.signal_every()}.encoded();
  ASSERT_EQ(queue.post(&recorder.pair, put), 0);
  EXPECT_DEATH((void)queue.post(&recorder.pair, put), "credit");
}

}  // namespace
}  // namespace tutti::verbs
