//! Wrong element types and ranks do not compile, nor does a loop body that assigns to a captured variable.

#[test]
fn wrong_types_do_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/compile_fail/*.rs");
}
