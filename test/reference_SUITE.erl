%% References: through calls and host functions, out of their instance and back.
-module(reference_SUITE).
-compile([export_all, nowarn_export_all]).
-include_lib("stdlib/include/assert.hrl").
-include_lib("wasmtime/include/wasmtime.hrl").

all() -> wasmtime_test:both().

groups() -> wasmtime_test:both(?MODULE).

init_per_group(Runner, Config) -> wasmtime_test:use(Runner), Config.

end_per_group(_, _) -> wasmtime_test:use(thread).

suite() -> wasmtime_test:suite().

%% ---- guests ---------------------------------------------------------------------------------

-define(GC, #{proposals => #{gc => true, function_references => true, exceptions => true}}).

mod() -> wasmtime_test:mod(refs, ?GC).

%% An instance of refs.wat, whose imports give back what they get unless Opts has others.
inst(Opts) -> wasmtime_test:inst(mod(), maps:merge(imports(), Opts)).

imports() ->
    #{{"env", "swap"} => fun(_, [A, B]) -> {ok, [B, A]} end,
      {"env", "apply"} => fun(I, [F, X]) -> wasmtime:call_ref(I, F, [X]) end,
      {"env", "point"} => fun(I, []) -> wasmtime:call(I, "new_point", [41, 1.5]) end}.

with_refs(Opts, Fun) ->
    Inst = inst(Opts),
    try Fun(Inst) after wasmtime:destroy(Inst) end.

with_refs(Fun) -> with_refs(#{}, Fun).

one(Result) -> {ok, [Value]} = Result, Value.

badarg(Result, Part) ->
    ?assertMatch(?WASMTIME_ERROR(call, badarg), Result),
    {error, #{message := Message}} = Result,
    ?assertMatch({_, {_, _}}, {Message, binary:match(Message, Part)}).

%% ---- values ---------------------------------------------------------------------------------

%% A null is a value of every nullable type, and of no other.
t_null(_) ->
    with_refs(fun(Inst) ->
        [?assertEqual({Name, {ok, [null]}}, {Name, wasmtime:call(Inst, Name, [null])})
         || Name <- ["extern", "func", "any", "eq", "i31", "struct", "array", "none", "bytes"]],
        [badarg(wasmtime:call(Inst, Name, [null]), <<"value 1">>)
         || Name <- ["some_extern", "point", "unary"]]
    end).

%% {i31, N} takes signed and unsigned numbers of 31 bits, and gives signed.
t_i31(_) ->
    Min = -(1 bsl 30),
    with_refs(fun(Inst) ->
        [?assertEqual({Name, {ok, [{i31, Back}]}}, {Name, wasmtime:call(Inst, Name, [{i31, N}])})
         || Name <- ["i31", "eq", "any"],
            {N, Back} <- [{0, 0}, {-1, -1}, {Min, Min}, {-Min - 1, -Min - 1}, {-Min, Min},
                          {(1 bsl 31) - 1, -1}]],
        [badarg(wasmtime:call(Inst, "i31", [Bad]), <<"value 1">>)
         || Bad <- [{i31, Min - 1}, {i31, 1 bsl 31}, {i31, 1 bsl 80}, {i31, 1.0}, {i31, a}, {i31},
                    {i32, 1}, 1, a, undefined, <<>>, [], make_ref(), self()]],
        [badarg(wasmtime:call(Inst, Name, [{i31, 1}]), <<"value 1">>)
         || Name <- ["extern", "func", "struct", "array", "point", "none"]]
    end).

%% Each kind of reference passes where its type is wanted, and nowhere else.
t_kinds(_) ->
    with_refs(fun(Inst) ->
        {ok, Extern} = wasmtime:externref(Inst, term),
        Func = one(wasmtime:call(Inst, "get_double", [])),
        Point = one(wasmtime:call(Inst, "new_point", [1, 2.0])),
        Bytes = one(wasmtime:call(Inst, "new_bytes", [3])),
        Fits = #{"extern" => [Extern], "some_extern" => [Extern], "func" => [Func], "unary" => [Func],
                 "any" => [Point, Bytes], "eq" => [Point, Bytes], "struct" => [Point],
                 "point" => [Point], "array" => [Bytes], "bytes" => [Bytes], "i31" => [],
                 "none" => []},
        [case lists:member(Ref, Good) of
             true -> ?assertMatch({Name, {ok, [_]}}, {Name, wasmtime:call(Inst, Name, [Ref])});
             false -> badarg(wasmtime:call(Inst, Name, [Ref]), <<"value 1">>)
         end || {Name, Good} <- maps:to_list(Fits), Ref <- [Extern, Func, Point, Bytes]]
    end).

%% The same object comes back, not a copy.
t_identity(_) ->
    with_refs(fun(Inst) ->
        P = one(wasmtime:call(Inst, "new_point", [1, 2.0])),
        Q = one(wasmtime:call(Inst, "new_point", [1, 2.0])),
        Back = one(wasmtime:call(Inst, "eq", [P])),
        ?assertEqual({ok, [1]}, wasmtime:call(Inst, "same", [P, Back])),
        ?assertEqual({ok, [0]}, wasmtime:call(Inst, "same", [P, Q]))
    end).

%% Vectors, numbers and references of several kinds in one signature keep their places.
t_mixed(_) ->
    Bytes = list_to_binary(lists:seq(1, 16)),
    with_refs(fun(Inst) ->
        {ok, Extern} = wasmtime:externref(Inst, kept),
        {ok, [1.5, {i31, -7}, -3, Back, Bytes]} =
            wasmtime:call(Inst, "mixed", [Bytes, Extern, -3, {i31, -7}, 1.5]),
        ?assertEqual({ok, kept}, wasmtime:externref_data(Back)),
        badarg(wasmtime:call(Inst, "mixed", [Bytes, Extern, -3, Extern, 1.5]), <<"value 4">>),
        badarg(wasmtime:call(Inst, "mixed", [Bytes, {i31, 1}, -3, null, 1.5]), <<"value 2">>),
        ?assertMatch(?WASMTIME_ERROR(call, badarity), wasmtime:call(Inst, "mixed", [Bytes]))
    end).

%% Conversions inside the guest are seen outside.
t_converted(_) ->
    with_refs(fun(Inst) ->
        {ok, Extern} = wasmtime:externref(Inst, term),
        Any = one(wasmtime:call(Inst, "to_any", [Extern])),
        ?assertMatch(#{kind := anyref}, wasmtime:ref_info(Any)),
        ?assertEqual({ok, term}, wasmtime:externref_data(Any)),
        ?assertEqual({ok, term}, wasmtime:externref_data(one(wasmtime:call(Inst, "to_extern", [Any])))),
        Number = one(wasmtime:call(Inst, "to_extern", [{i31, 5}])),
        ?assertMatch(#{kind := externref}, wasmtime:ref_info(Number)),
        ?assertMatch(?WASMTIME_ERROR(ref, badarg), wasmtime:externref_data(Number)),
        ?assertEqual({ok, [{i31, 5}]}, wasmtime:call(Inst, "to_any", [Number])),
        Point = one(wasmtime:call(Inst, "new_point", [9, 0.0])),
        Wrapped = one(wasmtime:call(Inst, "to_extern", [Point])),
        ?assertMatch(#{kind := externref}, wasmtime:ref_info(Wrapped)),
        Unwrapped = one(wasmtime:call(Inst, "to_any", [Wrapped])),
        ?assertEqual({ok, [9]}, wasmtime:call(Inst, "x", [Unwrapped]))
    end).

%% A caught exception is a reference: it can be thrown again, and does not stay behind.
t_exceptions(_) ->
    with_refs(fun(Inst) ->
        Exn = one(wasmtime:call(Inst, "catch", [])),
        ?assertEqual(#{kind => exnref}, wasmtime:ref_info(Exn)),
        [?assertMatch(?WASMTIME_TRAP(uncaught_exception), wasmtime:call(Inst, "rethrow", [Exn]))
         || _ <- [1, 2]],
        ?assertMatch(?WASMTIME_TRAP(null_reference), wasmtime:call(Inst, "rethrow", [null])),
        ?assertMatch(?WASMTIME_TRAP(uncaught_exception), wasmtime:call(Inst, "throw", [])),
        badarg(wasmtime:call(Inst, "any", [Exn]), <<"value 1">>)
    end).

%% What a reference tells of its object.
t_ref_info(_) ->
    with_refs(fun(Inst) ->
        ?assertEqual(#{kind => funcref, params => [<<"i32">>], results => [<<"i32">>]},
                     wasmtime:ref_info(one(wasmtime:call(Inst, "get_double", [])))),
        ?assertEqual(#{kind => struct, fields => [<<"(mut i32)">>, <<"f64">>]},
                     wasmtime:ref_info(one(wasmtime:call(Inst, "new_point", [1, 1])))),
        ?assertEqual(#{kind => array, element => <<"(mut i8)">>},
                     wasmtime:ref_info(one(wasmtime:call(Inst, "new_bytes", [1])))),
        {ok, Extern} = wasmtime:externref(Inst, x),
        ?assertEqual(#{kind => externref}, wasmtime:ref_info(Extern))
    end),
    [?assertError(badarg, wasmtime:ref_info(Bad)) || Bad <- not_refs()],
    [?assertError(badarg, wasmtime:externref_data(Bad)) || Bad <- not_refs()].

not_refs() -> [null, {i31, 1}, 1, make_ref(), self(), <<>>, #{}, mod()].

%% ---- Erlang terms ---------------------------------------------------------------------------

%% Any term goes in and comes back as it is.
t_terms(_) ->
    Fun = fun(X) -> X + 1 end,
    Terms = [a, 1, 1 bsl 100, 1.5, <<1, 2>>, <<3:2>>, binary:copy(<<7>>, 1000), "text", [], [a | b],
             {}, {1, 2}, #{a => #{b => c}}, self(), make_ref(), Fun, lists:seq(1, 100_000),
             maps:from_list([{I, I} || I <- lists:seq(1, 1000)]), null, {i31, 1}],
    with_refs(fun(Inst) ->
        [begin
             {ok, Ref} = wasmtime:externref(Inst, Term),
             ?assertEqual({ok, Term}, wasmtime:externref_data(Ref)),
             Back = one(wasmtime:call(Inst, "extern", [Ref])),
             ?assertEqual({ok, Term}, wasmtime:externref_data(Back))
         end || Term <- Terms]
    end).

%% The guest keeps a term from one call to the next.
t_kept_term(_) ->
    with_refs(fun(Inst) ->
        {ok, Ref} = wasmtime:externref(Inst, {state, 1}),
        {ok, []} = wasmtime:call(Inst, "keep_extern", [Ref]),
        ok = wasmtime:gc(Inst),
        Kept = one(wasmtime:call(Inst, "kept_extern", [])),
        ?assertEqual({ok, {state, 1}}, wasmtime:externref_data(Kept))
    end).

%% A module that knows nothing of objects takes terms as well, with the default compile options.
t_externref_alone(_) ->
    Text = "(module (func (export \"id\") (param externref) (result externref) (local.get 0)))",
    wasmtime_test:with_inst({wat, Text}, #{}, fun(Inst) ->
        {ok, Ref} = wasmtime:externref(Inst, alone),
        ?assertEqual({ok, alone}, wasmtime:externref_data(one(wasmtime:call(Inst, "id", [Ref]))))
    end).

%% ---- functions ------------------------------------------------------------------------------

t_call_ref(_) ->
    with_refs(fun(Inst) ->
        Double = one(wasmtime:call(Inst, "get_double", [])),
        ?assertEqual({ok, [42]}, wasmtime:call_ref(Inst, Double, [21])),
        ?assertEqual({ok, [42]}, wasmtime:call_ref(Inst, Double, [21], #{timeout => 5000})),
        Fails = one(wasmtime:call(Inst, "get_fails", [])),
        ?assertMatch(?WASMTIME_TRAP(unreachable), wasmtime:call_ref(Inst, Fails, [1])),
        ?assertMatch(?WASMTIME_ERROR(call, badarity), wasmtime:call_ref(Inst, Double, [])),
        badarg(wasmtime:call_ref(Inst, Double, [a]), <<"value 1">>),
        ?assertMatch(?WASMTIME_ERROR(call, badarg), wasmtime:call_ref(Inst, Double, 1)),
        ?assertMatch(?WASMTIME_BADARG(timeout),
                     wasmtime:call_ref(Inst, Double, [1], #{timeout => no})),
        ?assertMatch(?WASMTIME_BADARG(fuel), wasmtime:call_ref(Inst, Double, [1], #{fuel => 5})),
        {ok, Extern} = wasmtime:externref(Inst, term),
        Point = one(wasmtime:call(Inst, "new_point", [1, 1])),
        [?assertMatch({Bad, ?WASMTIME_ERROR(call, badarg)}, {Bad, wasmtime:call_ref(Inst, Bad, [1])})
         || Bad <- [Extern, Point | not_refs()]],
        [?assertError(badarg, wasmtime:call_ref(Bad, Double, [1])) || Bad <- [Double | not_refs()]]
    end).

%% ---- host functions -------------------------------------------------------------------------

%% References go to a host function and come back from it.
t_host_values(_) ->
    with_refs(fun(Inst) ->
        {ok, Extern} = wasmtime:externref(Inst, there),
        Bytes = one(wasmtime:call(Inst, "new_bytes", [3])),
        {ok, [Any, Back]} = wasmtime:call(Inst, "host_swap", [Extern, Bytes]),
        ?assertMatch(#{kind := array}, wasmtime:ref_info(Any)),
        ?assertEqual({ok, there}, wasmtime:externref_data(Back)),
        ?assertEqual({ok, [{i31, 3}, null]}, wasmtime:call(Inst, "host_swap", [null, {i31, 3}]))
    end).

%% A host function calls a function that it was given, and makes an object to give back.
t_host_nested(_) ->
    with_refs(fun(Inst) ->
        ?assertEqual({ok, [42]}, wasmtime:call(Inst, "host_apply", [21])),
        ?assertEqual({ok, [41]}, wasmtime:call(Inst, "host_point", []))
    end).

%% A term can be made, and garbage collected, inside a host function.
t_host_makes_terms(_) ->
    Swap = fun(Inst, [null, null]) ->
        {ok, Ref} = wasmtime:externref(Inst, made),
        ok = wasmtime:gc(Inst),
        {ok, [null, Ref]}
    end,
    with_refs(#{{"env", "swap"} => Swap}, fun(Inst) ->
        {ok, [null, Ref]} = wasmtime:call(Inst, "host_swap", [null, null]),
        ?assertEqual({ok, made}, wasmtime:externref_data(Ref))
    end).

%% A process of its own serves calls with references, and calls back through one.
t_host_process(_) ->
    Host = host_process_SUITE:host(),
    with_refs(#{host => Host}, fun(Inst) ->
        ok = host_process_SUITE:tell(Host, Inst),
        {ok, Extern} = wasmtime:externref(Inst, there),
        {ok, [{i31, 2}, Back]} = wasmtime:call(Inst, "host_swap", [Extern, {i31, 2}]),
        ?assertEqual({ok, there}, wasmtime:externref_data(Back)),
        ?assertEqual({ok, [42]}, wasmtime:call(Inst, "host_apply", [21])),
        ?assertEqual({ok, [41]}, wasmtime:call(Inst, "host_point", []))
    end),
    exit(Host, kill).

%% A result of the wrong kind is a host error that names the position.
t_host_wrong_results(_) ->
    with_refs(fun(Other) ->
        {ok, Foreign} = wasmtime:externref(Other, foreign),
        [with_refs(#{{"env", "swap"} => fun(_, _) -> {ok, Results} end}, fun(Inst) ->
             {error, #{class := host, kind := host_error, message := Message}} =
                 wasmtime:call(Inst, "host_swap", [null, null]),
             ?assertMatch({_, {_, _}}, {Message, binary:match(Message, Position)}),
             ?assertEqual({ok, [4]}, wasmtime:call(Inst, "double", [2]))
         end) || {Results, Position} <- [{[1, null], <<"1">>}, {[null, {i31, 1}], <<"2">>},
                                         {[Foreign, null], <<"1">>}, {[null, Foreign], <<"2">>},
                                         {[null, make_ref()], <<"2">>}, {[null], <<"1">>}]]
    end),
    %% Its concrete type is looked at in the store.
    Wrong = fun(I, []) -> wasmtime:call(I, "new_bytes", [1]) end,
    with_refs(#{{"env", "point"} => Wrong}, fun(Inst) ->
        ?assertMatch(?WASMTIME_ERROR(host, host_error), wasmtime:call(Inst, "host_point", []))
    end).
