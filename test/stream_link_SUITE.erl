%% How the imports `erlang.send' and `erlang.recv' are linked, and what their pointers may point at.
-module(stream_link_SUITE).
-compile([export_all, nowarn_export_all]).
-include_lib("stdlib/include/assert.hrl").
-include_lib("wasmtime/include/wasmtime.hrl").
-import(wasmtime_test, [mod/1]).
-import(stream_SUITE, [channel/0, channel/1, call/3, streamed/1]).

all() -> wasmtime_test:both().

groups() -> wasmtime_test:both(?MODULE).

init_per_group(Runner, Config) -> wasmtime_test:use(Runner), Config.

end_per_group(_, _) -> wasmtime_test:use(thread).

suite() -> wasmtime_test:suite().

%% A function of the user's takes the place of the built-in one.
t_overridden(_) ->
    Inst = channel(#{{"erlang", "send"} => fun(_, Args) -> self() ! {sent, Args}, {ok, []} end}),
    [] = call(Inst, send, [1, 2]),
    receive {sent, [1, 2]} -> ok after 0 -> error(not_called) end,
    ?assertEqual([], streamed(Inst)),
    ok = wasmtime:destroy(Inst).

%% Another type, a missing memory and other names are link errors that name the import.
t_wrong_imports(_) ->
    Import = fun(Name, Type) ->
        ["(module (import \"erlang\" \"", Name, "\" (func ", Type, ")) (memory (export \"memory\") 1))"]
    end,
    [begin
         {error, #{class := link, kind := Got, message := Text}} =
             wasmtime_test:instantiate(mod({wat, Wat})),
         ?assertEqual({Kind, Wat}, {Got, Wat}),
         ?assertNotEqual(nomatch, re:run(Text, "erlang.*(send|recv|spawn)"))
     end || {Kind, Wat} <- [
         {incompatible_import, Import("send", "(param i32)")},
         {incompatible_import, Import("send", "(param i64 i64)")},
         {incompatible_import, Import("recv", "(param i32 i32)")},
         {unknown_import, Import("spawn", "")},
         {incompatible_import, "(module (import \"erlang\" \"recv\""
                               " (func (param i32 i32) (result i32))))"}]].

%% Pointers and lengths beyond the memory trap, on both sides of its end.
t_pointers(_) ->
    Inst = channel(),
    End = 2 * 65536,
    ok = wasmtime:send(Inst, <<"kept">>),
    [?assertMatch({{error, #{class := trap, kind := memory_out_of_bounds, trace := [_ | _]}}, _},
                  {wasmtime:call(Inst, Name, [Ptr, Length]), {Name, Ptr, Length}})
     || Name <- [<<"send">>, <<"recv">>],
        {Ptr, Length} <- [{End, 1}, {End - 3, 4}, {0, -1}, {-1, 1}, {-1, -1}, {End + 1, 0}]],
    ?assertEqual([], streamed(Inst)),
    ?assertEqual([4], call(Inst, recv, [End - 4, 4])),
    [] = call(Inst, send, [End - 4, 4]),
    [] = call(Inst, send, [End, 0]),
    ?assertEqual([{channel, <<"kept">>}, {channel, <<>>}], streamed(Inst)),
    ok = wasmtime:destroy(Inst).

%% A memory of 64 bits has pointers and lengths of 64.
t_memory64(_) ->
    Inst = wasmtime_test:inst(channel64, #{}, #{proposals => #{memory64 => true}}),
    ok = wasmtime:send(Inst, <<"wide">>),
    ?assertEqual([-6], call(Inst, echo, [0, 3])),
    ?assertEqual([4], call(Inst, echo, [65532, 4])),
    ?assertEqual([{channel, <<"wide">>}], streamed(Inst)),
    [?assertMatch(?WASMTIME_TRAP(memory_out_of_bounds), wasmtime:call(Inst, <<"echo">>, Args))
     || Args <- [[1 bsl 32, 1], [-1, 1], [-1, -1], [65535, 2]]],
    ok = wasmtime:destroy(Inst).

%% A linked module streams too, out of its own memory; and a link of the name serves the import first.
t_links(_) ->
    Speaker = mod({wat, "(module (import \"erlang\" \"send\" (func $send (param i32 i32)))"
                        " (memory (export \"memory\") 1) (data (i32.const 0) \"linked\")"
                        " (func (export \"send\") (param i32 i32)"
                        "  (call $send (local.get 0) (local.get 1))))"}),
    Caller = fun(From) ->
        mod({wat, ["(module (import \"", From, "\" \"send\" (func $send (param i32 i32)))"
                   " (memory (export \"memory\") 1) (data (i32.const 0) \"main's\")"
                   " (func (export \"say\") (call $send (i32.const 0) (i32.const 6))))"]})
    end,
    [begin
         {ok, Inst} = wasmtime_test:instantiate(Caller(From), #{links => [{Name, Speaker}]}),
         {ok, []} = wasmtime:call(Inst, <<"say">>, []),
         ?assertEqual([{channel, Said}], streamed(Inst)),
         ok = wasmtime:destroy(Inst)
     end || {From, Name, Said} <- [{"speaker", "speaker", <<"linked">>},
                                   {"erlang", "erlang", <<"linked">>},
                                   {"erlang", "other", <<"main's">>}]].
