//! Each promise is tried from the inside. A test runs its own program again, under `unshare`, as pid 1 of a pid
//! namespace and with every capability in a user namespace: once mapped from an ordinary user, and, where the test
//! runs as root, once from root.

mod layers;
mod masks;
mod stage;
mod tree;
