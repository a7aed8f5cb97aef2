%% Values of the specification's scripts: arguments on their way in, results against what is expected.
%% Rule: every bit counts, but for the sign of a canonical NaN, which `nan' does not tell.
-module(spec_value).

-export([arguments/2, match/2]).

%% The values of a call. A host's reference is made where it is used.
arguments(Inst, Args) ->
    [argument(Inst, Arg) || Arg <- Args].

argument(Inst, {extern, N}) ->
    {ok, Ref} = wasmtime:externref(Inst, N),
    Ref;
argument(_, Arg) ->
    Arg.

%% Whether the results are as expected, in number and each.
match(Expected, Values) ->
    length(Expected) =:= length(Values)
        andalso lists:all(fun({E, V}) -> one(E, V) end, lists:zip(Expected, Values)).

one({either, Any}, Value) -> lists:any(fun(E) -> one(E, Value) end, Any);
one({i32, N}, Value) -> Value =:= N;
one({i64, N}, Value) -> Value =:= N;
one({v128, Bytes}, Value) -> Value =:= Bytes;
one({f32, Want}, Value) -> float(32, Want, bits(f32, Value));
one({f64, Want}, Value) -> float(64, Want, bits(f64, Value));
one({f32x4, Wants}, Value) -> lanes(32, Wants, [Bits || <<Bits:32/little>> <= Value]);
one({f64x2, Wants}, Value) -> lanes(64, Wants, [Bits || <<Bits:64/little>> <= Value]);
one(null, Value) -> Value =:= null;
one(i31, Value) -> is_i31(Value);
one(eq, Value) -> is_i31(Value) orelse lists:member(kind(Value), [struct, array]);
one(any, Value) -> is_i31(Value) orelse lists:member(kind(Value), [struct, array, anyref]);
one(extern, Value) -> kind(Value) =:= externref;
one(func, Value) -> kind(Value) =:= funcref;
one(array, Value) -> kind(Value) =:= array;
one(struct, Value) -> kind(Value) =:= struct;
one({extern, N}, Value) -> kind(Value) =:= externref andalso wasmtime:externref_data(Value) =:= {ok, N};
one({host, N}, Value) -> kind(Value) =:= anyref andalso wasmtime:externref_data(Value) =:= {ok, N}.

is_i31({i31, _}) -> true;
is_i31(_) -> false.

kind(Ref) when is_reference(Ref) -> maps:get(kind, wasmtime:ref_info(Ref));
kind(_) -> none.

lanes(Width, Wants, Lanes) ->
    length(Wants) =:= length(Lanes)
        andalso lists:all(fun({Want, Bits}) -> float(Width, Want, Bits) end, lists:zip(Wants, Lanes)).

%% The bits of a float that a call gave.
bits(Type, {Type, Bits}) -> Bits;
bits(_, nan) -> nan;
bits(f32, infinity) -> 16#7F800000;
bits(f32, neg_infinity) -> 16#FF800000;
bits(f64, infinity) -> 16#7FF0000000000000;
bits(f64, neg_infinity) -> 16#FFF0000000000000;
bits(f32, Value) when is_float(Value) -> <<Bits:32>> = <<Value:32/float>>, Bits;
bits(f64, Value) when is_float(Value) -> <<Bits:64>> = <<Value:64/float>>, Bits;
bits(_, _) -> none.

float(_, canonical, nan) -> true;
float(_, arithmetic, nan) -> true;
float(Width, Want, nan) -> is_canonical(Width, Want);
float(Width, canonical, Bits) -> is_canonical(Width, Bits);
float(32, arithmetic, Bits) -> is_integer(Bits) andalso Bits band 16#7FC00000 =:= 16#7FC00000;
float(64, arithmetic, Bits) -> is_integer(Bits) andalso Bits band 16#7FF8000000000000 =:= 16#7FF8000000000000;
float(_, Want, Bits) -> Want =:= Bits.

is_canonical(32, Bits) -> is_integer(Bits) andalso Bits band 16#7FFFFFFF =:= 16#7FC00000;
is_canonical(64, Bits) -> is_integer(Bits) andalso Bits band 16#7FFFFFFFFFFFFFFF =:= 16#7FF8000000000000.
