import ts from 'typescript-5';

export interface Mutant {
  readonly file: string;
  /** The file and the line. */
  readonly place: string;
  readonly change: string;
  /** The changed source text. */
  readonly text: string;
}

/** Operators, functions and SQL keywords, each with its replacement. */
const swaps: Readonly<Record<string, string>> = Object.fromEntries(
  `< <=,<= <,> >=,>= >,=== !==,!== ===,+ -,- +,* /,/ *,+= -=,-= +=,&& ||,|| &&,= <>,<> =,AND OR,OR AND,DESC ASC,ASC DESC,
  eq ne,ne eq,gt gte,gte gt,lt lte,lte lt,isNull isNotNull,isNotNull isNull,asc desc,desc asc,true false,false true,
  floor ceil,ceil floor,round trunc,trunc round,min max,max min,some every,every some`
    .split(',')
    .map((pair) => pair.trim().split(' ')),
);
const droppedCalls =
  /^(where|orderBy|groupBy|limit|filter|toSorted|sort|trim|toLowerCase|toUpperCase|slice|normalize)$/;
const sqlText = /\b(SELECT|INSERT|UPDATE|DELETE|WHERE|CASE)\s/;
const forReaders = /^(description|examples?|metadata|title|summary|detail|log|warn|info|error|debug)$/;
const nameOf = (callee: ts.Expression) => callee.getText().split('.').at(-1) ?? '';

/** Types, imports, documentation, log lines, and fallbacks that only the type checker needs. */
function isOutOfScope(node: ts.Node): boolean {
  const { parent } = node;
  if (ts.isTypeNode(node) || ts.isInterfaceDeclaration(node) || ts.isTypeAliasDeclaration(node)) return true;
  if (ts.isImportDeclaration(node) || ts.isExportDeclaration(node)) return true;
  if (ts.isPropertyAssignment(node)) return forReaders.test(node.name.getText());
  if (ts.isExpressionStatement(node)) return isOutOfScope(node.expression);
  if (ts.isCallExpression(node)) return forReaders.test(nameOf(node.expression));
  if (ts.isBindingElement(parent)) return ts.isArrayBindingPattern(parent.parent) && parent.initializer === node;
  return ts.isBinaryExpression(parent) && parent.right === node && ts.isElementAccessExpression(parent.left);
}

/** A replacement of the source text between two positions. */
type Change = readonly [start: number, end: number, after: string];

function changesOf(node: ts.Node): Change[] {
  const text = node.getText();
  const to = (after: string | undefined, part = node): Change[] =>
    after === undefined ? [] : [[part.getStart(), part.getEnd(), after]];
  if (ts.isBinaryExpression(node)) {
    const { left, right, operatorToken } = node;
    const operator = operatorToken.getText();
    if (operator === '??' && ts.isElementAccessExpression(left)) return [];
    if (operator.startsWith('+') && [left, right].some((side) => /^['"`]/.test(side.getText()))) return [];
    const sides = ['??', '&&', '||'].includes(operator) ? [left, right] : [];
    return [...to(swaps[operator], operatorToken), ...sides.flatMap((side) => to(`(${side.getText()})`))];
  }
  if (ts.isIfStatement(node)) return to(`!(${node.expression.getText()})`, node.expression);
  if (ts.isConditionalExpression(node)) return to(`!(${node.condition.getText()})`, node.condition);
  if (ts.isPrefixUnaryExpression(node) && text.startsWith('!')) return to(node.operand.getText());
  if (ts.isNumericLiteral(node)) return to(Number(node.text) < 1000 ? `${Number(node.text) + 1}` : `(${text} * 2)`);
  if (text === 'true' || text === 'false') return to(swaps[text]);
  if (ts.isExpressionStatement(node)) return /^(await )?[\w.?]+\(/.test(text) ? to(';') : [];
  if (ts.isCallExpression(node)) {
    const { expression: callee, arguments: all } = node;
    const name = nameOf(callee);
    const clauses = all.filter((each, index) => name === 'pipe' && index > 0 && !isOutOfScope(each));
    const changes = clauses.map((clause): Change => [clause.getFullStart() - 1, clause.getEnd(), '']);
    if (/^(and|or)$/.test(name)) changes.push(...all.flatMap((clause) => to('undefined', clause)));
    if (!ts.isPropertyAccessExpression(callee))
      return [...changes, ...to(swaps[name] && `drizzle.${swaps[name]}`, callee)];
    if (droppedCalls.test(name)) changes.push(...to(callee.expression.getText()));
    return [...changes, ...to(swaps[name], callee.name)];
  }
  const isText = ts.isStringLiteralLike(node) || ts.isTemplateHead(node) || ts.isTemplateMiddleOrTemplateTail(node);
  const whole = ts.isTemplateSpan(node.parent) ? node.parent.parent : node.parent;
  if (!isText || !sqlText.test(whole.getText())) return [];
  return [...text.matchAll(/<>|[<>]=?|=|\b(AND|OR|DESC|ASC)\b/g)].map(({ 0: part, index }) => {
    return [node.getStart() + index, node.getStart() + index + part.length, swaps[part] ?? part];
  });
}

/** All single changes of a source file. */
export function mutantsOf(file: string, source: string): Mutant[] {
  const tree = ts.createSourceFile(file, source, ts.ScriptTarget.Latest, true);
  const collect = (node: ts.Node): Change[] => {
    if (isOutOfScope(node)) return [];
    const children: ts.Node[] = [];
    ts.forEachChild(node, (child) => void children.push(child));
    return [...changesOf(node), ...children.flatMap(collect)];
  };
  return tree.statements.flatMap(collect).map(([start, end, after]) => ({
    file,
    place: `${file}:${tree.getLineAndCharacterOfPosition(start).line + 1}`,
    change: `- ${source.slice(start, end)}\n+ ${after}`,
    text: `import * as drizzle from 'drizzle-orm'; ${source.slice(0, start)}${after}${source.slice(end)}`,
  }));
}
