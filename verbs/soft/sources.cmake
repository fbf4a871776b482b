# The software device is part of the verbs layer: included by verbs/CMakeLists.txt.
target_sources(tutti_verbs PRIVATE
  soft/atomic.cpp
  soft/backing.cpp
  soft/completion_queue.cpp
  soft/connections.cpp
  soft/device.cpp
  soft/driver.cpp
  soft/memory.cpp
  soft/peer.cpp
  soft/process.cpp
  soft/queue_pair.cpp
  soft/receive_queue.cpp
  soft/remote.cpp
  soft/rendezvous.cpp
  soft/segment.cpp
  soft/send.cpp)
tutti_layer(tutti_verbs verbs ${CMAKE_CURRENT_SOURCE_DIR}
  soft/atomic.hpp
  soft/backing.hpp
  soft/completion_queue.hpp
  soft/connections.hpp
  soft/context.hpp
  soft/device.hpp
  soft/layout.hpp
  soft/limits.hpp
  soft/memory.hpp
  soft/peer.hpp
  soft/process.hpp
  soft/queue_pair.hpp
  soft/receive_queue.hpp
  soft/remote.hpp
  soft/rendezvous.hpp
  soft/segment.hpp
  soft/send.hpp
  soft/spin_lock.hpp)
