//! Prints the layouts of a kernel.

use super::KernelInfo;
use crate::ir::BlockId;

impl KernelInfo<'_> {
    /// Returns a readable text of the layouts of the kernel: one line a value, in program order.
    pub fn layout_text(&self, body: BlockId) -> String {
        use std::fmt::Write;
        let mut text = String::new();
        let module = self.module;
        module.walk(body, &mut |id| {
            let op = module.op(id);
            for &result in &op.results {
                let Some(layout) = self.inference.layout(result) else { continue };
                if layout.num_elements() > 1 {
                    let location = module.location(op.loc).map(|l| l.to_string()).unwrap_or_default();
                    let _ = writeln!(
                        text,
                        "%{} = {} {:?} register {:?} lane {:?} warp {:?}  // {location}",
                        result.index(),
                        op.code.spec().name,
                        layout.shape(),
                        layout.register_bases(),
                        layout.lane_bases(),
                        layout.warp_bases()
                    );
                }
            }
        });
        text
    }
}
