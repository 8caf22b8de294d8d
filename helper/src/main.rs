//! The privileged half of Landbox: namespaces, mounts and filters from one signed plan.

// The processes that call this are the next thing to come.
#[allow(dead_code)]
mod mount;
#[allow(dead_code)]
mod sys;

fn main() {}
