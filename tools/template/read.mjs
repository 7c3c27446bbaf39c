// Prints a template as JSON, short forms in their long ones: a second reading of the same file, to hold the Go checker's against.
//   node read.mjs TEMPLATE
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const YAML = createRequire(import.meta.url)("yaml");

const long = (tag) => (tag === "!Ref" || tag === "!Condition" ? tag.slice(1) : `Fn::${tag.slice(1)}`);

function value(node) {
  const plain = YAML.isMap(node)
    ? Object.fromEntries(node.items.map((p) => [String(p.key), value(p.value)]))
    : YAML.isSeq(node)
      ? node.items.map(value)
      : node?.value === null || node === null
        ? ""
        : String(node.source ?? node.value);
  if (!node?.tag?.startsWith("!")) return plain;
  if (node.tag === "!GetAtt" && typeof plain === "string") {
    const dot = plain.indexOf(".");
    return { "Fn::GetAtt": [plain.slice(0, dot), plain.slice(dot + 1)] };
  }
  return { [long(node.tag)]: plain };
}

const tags = ["Ref", "Condition", "GetAtt", "Sub", "If", "Not", "Equals", "And", "Or", "Join", "Split", "Select", "FindInMap"];
const customTags = tags.flatMap((t) => [
  { tag: `!${t}`, resolve: (s) => s },
  { tag: `!${t}`, collection: "seq" },
  { tag: `!${t}`, collection: "map" },
]);
const document = YAML.parseDocument(readFileSync(process.argv[2], "utf8"), { customTags, schema: "failsafe" });
if (document.errors.length) throw document.errors[0];
process.stdout.write(JSON.stringify(value(document.contents)) + "\n");
