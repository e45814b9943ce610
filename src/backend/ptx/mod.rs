//! The ptx back end: layouts, shared memory, instruction selection, PTX text.
