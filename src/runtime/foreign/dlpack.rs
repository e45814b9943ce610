//! DLPack
