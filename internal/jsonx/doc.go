// Package jsonx reads JSON that authorizes something: strictly, exactly and in one canonical form. It also repairs the
// JSON that models write.
//
// Duplicate keys, unknown keys and inputs beyond their limits are errors. Numbers are compared as decimals, never as
// floats, amounts of money included. Conditions test a value at a pointer, patches change one.
package jsonx
