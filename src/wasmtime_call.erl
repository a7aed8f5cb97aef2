%% @private
%% The call loop: starts a request, serves the guest's host calls, waits for the one result.
%% Rule: whatever a host function does, the guest gets an answer and the loop goes on.
-module(wasmtime_call).

-include("wasmtime_instance.hrl").

-export([instantiate/1, instantiate/3, table/1, call/4, destroy/1]).

%% @doc A new instance; a start section runs before this returns.
-spec instantiate(reference(), map(), map()) ->
          {ok, #wasmtime_instance{}} | {error, wasmtime_error:t()}.
instantiate(Mod, Opts, Funs) ->
    Ref = make_ref(),
    Made = case wasmtime_nif:instance_new(Mod, Opts, Ref) of
        dirty -> wasmtime_nif:instance_new_dirty(Mod, Opts, Ref);
        Other -> Other
    end,
    made(Made, Ref, Funs, table(Funs)).

%% @doc The functions in the order of their names.
-spec table(map()) -> tuple().
table(Funs) ->
    list_to_tuple([map_get(Name, Funs) || {_, _} = Name <- lists:sort(maps:keys(Funs))]).

%% @doc A new instance of a template.
-spec instantiate(#wasmtime_template{}) ->
          {ok, #wasmtime_instance{}} | {error, wasmtime_error:t()}.
instantiate(#wasmtime_template{ref = Template, funs = Funs, table = Table}) ->
    Ref = make_ref(),
    Made = case wasmtime_nif:instance_from(Template, Ref) of
        dirty -> wasmtime_nif:instance_from_dirty(Template, Ref);
        Other -> Other
    end,
    made(Made, Ref, Funs, Table).

made({ok, Inst0}, _, Funs, Table) ->
    {ok, #wasmtime_instance{ref = Inst0, funs = Funs, table = Table}};
made({wait, Inst0, Started}, Ref, Funs, Table) ->
    Inst = #wasmtime_instance{ref = Inst0, funs = Funs, table = Table},
    case finish(Started, Ref, Inst) of
        {ok, _} -> {ok, Inst};
        Error -> Error
    end;
made(Error, _, _, _) ->
    Error.

%% @doc Calls an export. All messages of the call carry a reference that is made just before the
%% wait, so a full mailbox is not searched.
-spec call(#wasmtime_instance{}, binary(), [term()], map()) ->
          {ok, [term()]} | {error, wasmtime_error:t()}.
call(#wasmtime_instance{ref = Inst0} = Inst, Name, Args, Opts) ->
    Ref = make_ref(),
    Started = wasmtime_nif:call_start(Inst0, Name, Args, Opts, Ref),
    noted(Name, Inst, finish(Started, Ref, Inst)).

%% A thread runner sends messages; under the scheduler runner this process polls the guest itself.
finish({result, Result}, _, _) -> Result;
finish(ok, Ref, Inst) -> loop(Ref, Inst);
finish({error, _} = Error, _, _) -> Error;
finish({Call, Step}, Ref, Inst) -> drive(Step, Call, Ref, Inst).

drive(Step, Call, Ref, Inst) ->
    case Step of
        {host, HostId, Index, Args} ->
            Fun = element(Index + 1, Inst#wasmtime_instance.table),
            Next = wasmtime_nif:call_resume(Call, HostId, answer(Fun, Inst, Args)),
            drive(Next, Call, Ref, Inst);
        {result, Result} ->
            Result;
        again ->
            drive(wasmtime_nif:call_poll(Call), Call, Ref, Inst);
        wait ->
            receive {wasmtime_wake, Ref} -> ok end,
            drive(wasmtime_nif:call_poll(Call), Call, Ref, Inst)
    end.

loop(Ref, Inst) ->
    receive
        {wasmtime_result, Ref, _Id, Result} ->
            Result;
        {wasmtime_host_call, Ref, HostId, Key, Args} ->
            ok = wasmtime_nif:host_reply(Inst#wasmtime_instance.ref, HostId, serve(Key, Args, Inst)),
            loop(Ref, Inst)
    end.

%% A pre-initialization wants to know whether `_initialize' was called (see wasmtime_preinit).
noted(<<"_initialize">>, #wasmtime_instance{funs = #{initialized := Flag}}, {ok, _} = Result) ->
    ok = atomics:put(Flag, 1, 1),
    Result;
noted(_, _, Result) ->
    Result.

%% @doc Ends an instance; its store and its slot are free when this returns.
-spec destroy(#wasmtime_instance{}) -> ok.
destroy(#wasmtime_instance{ref = Inst0}) ->
    Ref = make_ref(),
    case destroy(Inst0, Ref) of
        ok -> ok;
        wait -> receive {wasmtime_result, Ref, _Id, _} -> ok end
    end.

destroy(Inst0, Ref) ->
    case wasmtime_nif:instance_destroy(Inst0, Ref) of
        dirty -> wasmtime_nif:instance_destroy_dirty(Inst0, Ref);
        Result -> Result
    end.

%% ---- host functions -------------------------------------------------------------------------

serve(Key, Args, #wasmtime_instance{funs = Funs} = Inst) ->
    case Funs of
        #{Key := Fun} -> answer(Fun, Inst, Args);
        _ -> failed("is not among the imports", [])
    end.

%% Native code says which function it was, and checks the values.
answer(Fun, Inst, Args) ->
    try Fun(Inst, Args) of
        {ok, Values} = Reply when length(Values) >= 0 -> Reply;
        {error, Reason} -> failed("returned an error: ~0tp", [Reason]);
        Other -> failed("returned neither {ok, Values} nor {error, Reason}: ~0tp", [Other])
    catch
        error:Reason -> failed("raised ~0tp", [Reason]);
        exit:Reason -> failed("exited with ~0tp", [Reason]);
        throw:Reason -> failed("threw ~0tp", [Reason])
    end.

failed(Format, Args) ->
    {error, wasmtime_error:text(Format, Args)}.
