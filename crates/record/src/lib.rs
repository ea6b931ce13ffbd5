//! (page to be written)
