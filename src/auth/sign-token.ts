import { createSecretKey } from 'node:crypto';
import { SignJWT } from 'jose/jwt/sign';

/** Signs an HS256 token for `id` that is good for `ttlSeconds` from `now`. */
export function signToken(options: {
  secret: string;
  issuer: string | undefined;
  audience: string | undefined;
  audienceClaim?: string;
  rolesClaim: string;
  id: string;
  roles: readonly string[];
  ttlSeconds: number;
  now: Date;
}): Promise<string> {
  const issuedAt = Math.floor(options.now.getTime() / 1000);
  const { audience, audienceClaim = 'aud' } = options;
  const claims = audience === undefined ? {} : { [audienceClaim]: audience };
  const jwt = new SignJWT({ ...claims, [options.rolesClaim]: options.roles })
    .setProtectedHeader({ alg: 'HS256', typ: 'JWT' })
    .setSubject(options.id)
    .setIssuedAt(issuedAt)
    .setExpirationTime(issuedAt + options.ttlSeconds);
  if (options.issuer !== undefined) jwt.setIssuer(options.issuer);
  return jwt.sign(createSecretKey(options.secret, 'utf8'));
}
