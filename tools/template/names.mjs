// Writes internal/samtest/names.json: the names that the Go checker needs of AWS's resource specification, and nothing else of it.
//   node tools/template/names.mjs > internal/samtest/names.json
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";

const require = createRequire(import.meta.url);
const { loadAwsServiceSpecSync } = require("@aws-cdk/aws-service-spec");
const { version } = require("@aws-cdk/aws-service-spec/package.json");

const db = loadAwsServiceSpecSync();
const resources = new Map([...db.all("resource")].map((r) => [r.cloudFormationType, r]));
const types = {};

// nested names the type of a property: T, []T or {}T; empty where it has no names of its own, or one of several.
function nested(type, owner) {
  switch (type.type) {
    case "ref": {
      const definition = db.get("typeDefinition", type.reference.$ref);
      const name = `${owner}.${definition.name}`;
      add(name, definition.properties, owner);
      return name;
    }
    case "array":
      return wrap("[]", nested(type.element, owner));
    case "map":
      return wrap("{}", nested(type.element, owner));
    default:
      return "";
  }
}

const wrap = (prefix, name) => (name && !/^[[{]/.test(name) ? prefix + name : "");

function add(name, properties, owner) {
  if (types[name]) return;
  types[name] = {};
  for (const key of Object.keys(properties).sort()) types[name][key] = nested(properties[key].type, owner);
}

for (const [name, resource] of resources) if (name.startsWith("AWS::Serverless::")) add(name, resource.properties, name);
nested(resources.get("AWS::Lambda::Function").properties.LoggingConfig.type, "AWS::Lambda::Function");

// What SAM makes of its own types has their attributes.
const becomes = { "AWS::Serverless::Function": "AWS::Lambda::Function", "AWS::Serverless::StateMachine": "AWS::StepFunctions::StateMachine" };
const template = readFileSync(new URL("../../template.yaml", import.meta.url), "utf8");
const attributes = {};
for (const [, name] of template.matchAll(/^ {4}Type: (AWS::\S+)$/gm)) {
  const resource = resources.get(becomes[name] ?? name);
  if (!resource) throw new Error(`${name}: not in the specification`);
  attributes[name] = Object.keys(resource.attributes).sort();
}

const sorted = (o) => Object.fromEntries(Object.entries(o).sort(([a], [b]) => (a < b ? -1 : 1)));
const out = { Source: `@aws-cdk/aws-service-spec ${version}`, Types: sorted(types), Attributes: sorted(attributes) };
process.stdout.write(JSON.stringify(out, null, 1) + "\n");
